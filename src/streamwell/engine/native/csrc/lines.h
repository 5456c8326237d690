// Memory that begins with a line of the cache: a vector that lies in two of them takes twice the time, and a
// tile more.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace streamwell {

constexpr std::size_t kLineBytes = 64;

template <class T>
struct LineAllocator {
  using value_type = T;

  LineAllocator() = default;
  template <class Other>
  LineAllocator(const LineAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(kLineBytes)));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t(kLineBytes)); }

  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
  friend bool operator!=(const LineAllocator&, const LineAllocator&) { return false; }
};

template <class T>
using Lines = std::vector<T, LineAllocator<T>>;

}  // namespace streamwell
