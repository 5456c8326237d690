// What is fast differs between processors that have the same instructions.
#pragma once

namespace streamwell {

inline bool is_intel() {
  static const bool value = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") != 0;
  }();
  return value;
}

}  // namespace streamwell
