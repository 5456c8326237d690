// A mixture of experts (Shazeer et al. 2017): each row goes to the few that score highest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "linear.h"
#include "lines.h"

namespace streamwell {

struct Expert {
  Linear up, down;  // `up` has the gate beside it, if there is one
};

struct Mixture {
  Linear router;  // [count, hidden_size]; without weights there are no experts
  const Expert* experts;
  int64_t count, per_row;
  int32_t sums_to_one;  // the shares of a row's experts
  Expert shared;        // sees all rows, or has no weights
  Linear shared_gate;   // [1, hidden_size]
  explicit operator bool() const { return router.weights; }
};

// One call: what experts make of the rows of `input` is added to those of `x`, in the order of the
// experts' numbers, so that a row does not depend on the others.
class Mixing {
 public:
  Mixing(const Mixture& mixture, Epilogue activation, const float* input, int64_t rows, float* x)
      : mixture_(mixture), activation_(activation), input_(input), x_(x), rows_(rows),
        size_(mixture.router.k) {}

  void run() {
    invite();
    for (size_t first = 0; first < tables_.size();) {
      size_t last = first;
      for (int64_t guests = 0; last < tables_.size() && (last == first || guests < kMostGuests);)
        guests += tables_[last++].count;
      serve(first, last);
      first = last;
    }
    if (mixture_.shared.up.weights) serve_all();
  }

 private:
  struct Choice {
    int64_t expert, row;
    float share;
  };
  // An expert and those who chose it: a stretch of `choices_`.
  struct Table {
    const Expert* expert;
    int64_t begin, count;
  };
  // A thread's memory, which it uses again for table after table, so that it stays near.
  struct Room {
    Lines<float> scores, gathered, inner, given;
    Lines<uint8_t> workspace;
  };
  // At once: what they are given is kept until all of them are served.
  static constexpr int64_t kMostGuests = 1024;
  static constexpr float kTaken = -1.0f;  // less than any share

  template <class T>
  static T* of_size(Lines<T>& memory, int64_t size) {
    if (static_cast<int64_t>(memory.size()) < size) memory.resize(size);
    return memory.data();
  }

  static Room& room() {
    static thread_local Room room;
    return room;
  }

  // Rows choose their experts, whose guests then stand together.
  void invite() {
    const int64_t count = mixture_.count, per_row = mixture_.per_row;
    float* scores = of_size(room().scores, rows_ * count);
    multiply(mixture_.router, input_, rows_, scores, kPlain, workspace_of(rows_, size_));
    choices_.resize(rows_ * per_row);
#pragma omp parallel for if (rows_ >= kRowsWorthThreads)
    for (int64_t row = 0; row < rows_; ++row)
      choose(row, scores + row * count, choices_.data() + row * per_row);
    std::stable_sort(choices_.begin(), choices_.end(),
                     [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
    for (const Choice& choice : choices_) {
      const Expert* expert = mixture_.experts + choice.expert;
      if (tables_.empty() || tables_.back().expert != expert)
        tables_.push_back({expert, &choice - choices_.data(), 0});
      ++tables_.back().count;
    }
  }

  // Scores of a row become shares, and the highest ones are chosen; of equals the first.
  void choose(int64_t row, float* scores, Choice* choices) const {
    const float highest = *std::max_element(scores, scores + mixture_.count);
    float total = 0.0f, sum = 0.0f;
    for (int64_t e = 0; e < mixture_.count; ++e) total += scores[e] = std::exp(scores[e] - highest);
    for (int64_t i = 0; i < mixture_.per_row; ++i) {
      int64_t best = -1;
      for (int64_t e = 0; e < mixture_.count; ++e)
        if (scores[e] != kTaken && (best < 0 || scores[e] > scores[best])) best = e;
      choices[i] = {best, row, scores[best]};
      sum += scores[best];
      scores[best] = kTaken;
    }
    // a score that is no number spoils its row, though that expert is never chosen
    const float whole = (mixture_.sums_to_one ? sum : total) + 0.0f * total;
    for (int64_t i = 0; i < mixture_.per_row; ++i) choices[i].share /= whole;
  }

  // Some tables: each thread takes one after the other, or all threads work at each of a few.
  void serve(size_t first, size_t last) {
    const int64_t begin = tables_[first].begin, tables = static_cast<int64_t>(last - first);
    const int64_t guests = tables_[last - 1].begin + tables_[last - 1].count - begin;
    float* given = of_size(room().given, guests * size_);
    const auto serve_table = [&](int64_t i) {
      const Table& table = tables_[first + i];
      serve(table, given + (table.begin - begin) * size_);
    };
    // a condition of the pragma would make regions within it start threads of their own
    if (tables >= 2 * omp_get_max_threads()) {
#pragma omp parallel for schedule(dynamic)
      for (int64_t i = 0; i < tables; ++i) serve_table(i);
    } else {
      for (int64_t i = 0; i < tables; ++i) serve_table(i);
    }
    add_shares(choices_.data() + begin, guests, given);
  }

  void serve(const Table& table, float* given) const {
    float* rows = of_size(room().gathered, table.count * size_);
    for (int64_t i = 0; i < table.count; ++i)
      std::memcpy(rows + i * size_, input_ + choices_[table.begin + i].row * size_, size_ * 4);
    compute(*table.expert, rows, table.count, given);
  }

  void serve_all() {
    float* gates = of_size(room().scores, rows_);
    float* given = of_size(room().given, rows_ * size_);
    multiply(mixture_.shared_gate, input_, rows_, gates, kPlain, workspace_of(rows_, size_));
    compute(mixture_.shared, input_, rows_, given);
    choices_.resize(rows_);
    for (int64_t row = 0; row < rows_; ++row)
      choices_[row] = {0, row, 1.0f / (1.0f + std::exp(-gates[row]))};
    add_shares(choices_.data(), rows_, given);
  }

  static uint8_t* workspace_of(int64_t rows, int64_t k) {
    return of_size(room().workspace, workspace_bytes(rows, k));
  }

  void compute(const Expert& expert, const float* rows, int64_t count, float* given) const {
    const int64_t inner_size = expert.down.k;
    float* inner = of_size(room().inner, count * inner_size);
    uint8_t* workspace = workspace_of(count, std::max(size_, inner_size));
    multiply(expert.up, rows, count, inner, activation_, workspace);
    multiply(expert.down, inner, count, given, kPlain, workspace);
  }

  // What choices have brought; each thread has some columns of all of it.
  void add_shares(const Choice* choices, int64_t count, const float* given) const {
    constexpr int64_t stripe = 16 * kLanes;
#pragma omp parallel for if (count >= kRowsWorthThreads)
    for (int64_t begin = 0; begin < size_; begin += stripe)
      for (int64_t i = 0; i < count; ++i) {
        // all layers of a decoder have the same factor for what is added to its rows
        const F32 factor = broadcast(choices[i].share * mixture_.router.factor);
        const float* from = given + i * size_;
        float* sums = x_ + choices[i].row * size_;
        for (int64_t d = begin; d < std::min(begin + stripe, size_); d += kLanes) {
          const int64_t left = size_ - d;
          store_some(sums + d, fma(factor, load_some(from + d, left), load_some(sums + d, left)), left);
        }
      }
  }

  const Mixture& mixture_;
  Epilogue activation_;
  const float* input_;
  float* x_;
  int64_t rows_, size_;
  std::vector<Choice> choices_;
  std::vector<Table> tables_;
};

}  // namespace streamwell
