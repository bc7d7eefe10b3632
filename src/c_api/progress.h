// How far long work on a file is: told to a caller who asked for it, who may end it, and ended by weft_cancel.
#pragma once

#include <utility>

#include "serialization/save_line.h"
#include "src/c_api/calling_out.h"
#include "src/runtime/clock.h"
#include "weft.h"

namespace weft::c_api {

// Looks for weft_cancel at each piece, and tells the caller at most 20 times a second and at the end.
class Progress {
 public:
  // `look` may be empty: then nothing but the caller's answer ends the work.
  Progress(weft_progress_fn tell, void* user_data, SaveTurn::Look look)
      : tell_(tell), user_data_(user_data), look_(std::move(look)) {}
  absl::Status operator()(uint64_t done, uint64_t total) {
    if (look_) WEFT_RETURN_IF_ERROR(look_());
    const int64_t now = MonotonicNow();
    if (tell_ == nullptr || (done < total && now - told_ < kPause)) return absl::OkStatus();
    told_ = now;
    const CallingOut out;
    if (tell_(user_data_, done, total) == 0) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kCancelled, "the progress callback asked for an end");
  }

 private:
  static constexpr int64_t kPause = 50'000'000;  // nanoseconds
  const weft_progress_fn tell_;
  void* const user_data_;
  const SaveTurn::Look look_;
  int64_t told_ = 0;
};

}  // namespace weft::c_api
