// The policy's counting, and the search for a period.
#include "src/lazy/cut/cut_policy.h"

#include <algorithm>

namespace weft::lazy {

void CutPolicy::Configure(const Options& options) {
  max_nodes_ = options.max_pending_nodes;
  max_bytes_ = options.max_pending_bytes;
  repetition_nodes_ = options.repetition_nodes;
  next_search_ = repetition_nodes_;
}

void CutPolicy::Recorded(uint32_t signature, int64_t nodes, int64_t bytes) {
  nodes_ += nodes;
  if (__builtin_add_overflow(bytes_, bytes, &bytes_)) bytes_ = INT64_MAX;
  if (repetition_nodes_ == 0) return;
  const size_t at = signatures_.size();
  if (!round_.empty() && at >= round_start_ && signature != round_[(at - round_start_) % round_.size()]) {
    round_.clear();  // the loop has ended
    next_search_ = nodes_ + repetition_nodes_;
  }
  signatures_.push_back(signature);
}

std::optional<CutReason> CutPolicy::Due() {
  if (nodes_ < postponed_to_) return std::nullopt;
  if (max_bytes_ > 0 && bytes_ >= max_bytes_) return CutReason::kBytes;
  if (repetition_nodes_ > 0) {
    if (round_.empty() && nodes_ >= next_search_) FindPeriod();
    if (!round_.empty() && signatures_.size() == cut_at_) return CutReason::kRepetition;
  }
  if (max_nodes_ > 0 && nodes_ >= max_nodes_) return CutReason::kNodes;
  return std::nullopt;
}

void CutPolicy::Computed(int64_t nodes) {
  nodes_ -= nodes;
  if (nodes_ <= 0) Cut(CutReason::kHostRead, mark());
}

void CutPolicy::Cut(CutReason reason, const Mark& mark) {
  if (reason == CutReason::kRepetition) {
    // The next segments hold as many rounds as this one, so that a loop that began with the graph compiles once.
    cut_at_ -= round_start_;
    round_start_ = 0;
  } else {
    round_.clear();
  }
  nodes_ = std::max<int64_t>(nodes_ - mark.nodes, 0);
  bytes_ = std::max<int64_t>(bytes_ - mark.bytes, 0);
  postponed_to_ = 0;
  signatures_.erase(signatures_.begin(),
                    signatures_.begin() + static_cast<ptrdiff_t>(std::min(mark.operations, signatures_.size())));
  next_search_ = repetition_nodes_;
}

void CutPolicy::Postpone() {
  postponed_to_ = 2 * std::max<int64_t>(nodes_, 1);
  round_.clear();
  next_search_ = std::max(postponed_to_, repetition_nodes_);
}

void CutPolicy::FindPeriod() {
  const size_t n = signatures_.size();
  // z[p]: how far the sequence, read backwards, agrees with itself p operations later. Linear (Gusfield's Z algorithm).
  std::vector<uint32_t> z(n);
  auto back = [&](size_t i) { return signatures_[n - 1 - i]; };
  size_t left = 0, right = 0;
  for (size_t p = 1; p < n; ++p) {
    size_t length = p < right ? std::min<size_t>(right - p, z[p - left]) : 0;
    while (p + length < n && back(length) == back(p + length)) ++length;
    if (p + length > right) left = p, right = p + length;
    z[p] = static_cast<uint32_t>(length);
  }
  for (size_t p = 1; 3 * p <= n; ++p) {
    const size_t covered = z[p] + p;
    if (covered < 3 * p || 2 * covered < n) continue;
    round_start_ = n - covered;
    round_.assign(signatures_.begin() + static_cast<ptrdiff_t>(round_start_),
                  signatures_.begin() + static_cast<ptrdiff_t>(round_start_ + p));
    cut_at_ = round_start_ + (covered + p - 1) / p * p;
    return;
  }
  // Searched again when the graph has grown by half: linear in all.
  next_search_ = nodes_ + nodes_ / 2;
}

}  // namespace weft::lazy
