// weft_schedule_rate: the learning rate of a step.
#include <cmath>
#include <numbers>

#include "src/c_api/guard.h"
#include "src/c_api/options.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// Goes from a to b along half a wave; part runs from 0 to 1.
double Between(double a, double b, double part) { return b + (a - b) * 0.5 * (1 + std::cos(std::numbers::pi * part)); }

// Smith 2018, as PyTorch's OneCycleLR: up over a share of the steps and down to almost nothing.
double OneCycle(const weft_schedule_options& o, double step) {
  const double low = o.rate / o.divide, last = low / o.final_divide;
  const double peak = o.start * static_cast<double>(o.steps) - 1, end = static_cast<double>(o.steps) - 1;
  if (step > end) return last;
  return step <= peak ? Between(low, o.rate, step / peak) : Between(o.rate, last, (step - peak) / (end - peak));
}

double Rate(const weft_schedule_options& o, int64_t step) {
  if (o.kind == WEFT_SCHEDULE_ONE_CYCLE) return OneCycle(o, static_cast<double>(step));
  if (step < o.warmup) return o.rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup);
  const int64_t since = step - o.warmup;
  switch (o.kind) {
    case WEFT_SCHEDULE_STEP: return o.rate * std::pow(o.factor, static_cast<double>(since / o.every));
    case WEFT_SCHEDULE_EXPONENTIAL: return o.rate * std::pow(o.factor, static_cast<double>(since));
    case WEFT_SCHEDULE_LINEAR:
    case WEFT_SCHEDULE_COSINE: {
      const double length = static_cast<double>(std::max<int64_t>(o.steps - o.warmup, 1));
      const double done = std::min(static_cast<double>(since) / length, 1.0);
      return o.kind == WEFT_SCHEDULE_COSINE ? Between(o.rate, o.end, done) : o.rate + (o.end - o.rate) * done;
    }
    default: return o.rate;
  }
}

absl::Status CheckFields(const weft_schedule_options& o) {
  const auto field = [](std::string_view name, auto value, std::string_view wanted) {
    return UserError("weft_schedule_options.", name, " is ", value, "; it must be ", wanted);
  };
  if (o.kind > WEFT_SCHEDULE_ONE_CYCLE) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "weft_schedule_options.kind is ",
                       static_cast<uint32_t>(o.kind), ", which this version does not know");
  }
  if (!std::isfinite(o.rate) || o.rate < 0) return field("rate", o.rate, "0 or more and finite");
  if (!std::isfinite(o.end) || o.end < 0) return field("end", o.end, "0 or more and finite");
  if (o.warmup < 0) return field("warmup", o.warmup, "0 or more");
  const bool long_one =
      o.kind == WEFT_SCHEDULE_LINEAR || o.kind == WEFT_SCHEDULE_COSINE || o.kind == WEFT_SCHEDULE_ONE_CYCLE;
  if (long_one && o.steps < 1) return field("steps", o.steps, "1 or more");
  if (o.kind == WEFT_SCHEDULE_STEP && o.every < 1) return field("every", o.every, "1 or more");
  if (!std::isfinite(o.factor) || o.factor < 0) return field("factor", o.factor, "0 or more and finite");
  if (o.kind != WEFT_SCHEDULE_ONE_CYCLE) return absl::OkStatus();
  if (o.warmup != 0)
    return field("warmup", o.warmup, "0 of a one-cycle schedule, whose start says how long it goes up");
  if (!(o.start > 0 && o.start < 1)) return field("start", o.start, "above 0 and below 1");
  if (!(o.divide > 0) || !std::isfinite(o.divide)) return field("divide", o.divide, "above 0 and finite");
  if (!(o.final_divide > 0) || !std::isfinite(o.final_divide)) {
    return field("final_divide", o.final_divide, "above 0 and finite");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_schedule_rate(const weft_schedule_options* schedule, int64_t step,
                                          double* out_rate) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(schedule);
    WEFT_NOT_NULL(out_rate);
    weft_schedule_options o;
    WEFT_RETURN_IF_ERROR(ReadOptions(schedule, sizeof(o), "weft_schedule_options", &o));
    if (o.factor == 0) o.factor = 0.1;
    if (o.start == 0) o.start = 0.3;
    if (o.divide == 0) o.divide = 25;
    if (o.final_divide == 0) o.final_divide = 1e4;
    WEFT_RETURN_IF_ERROR(CheckFields(o));
    if (step < 0) return UserError("step is ", step, "; it must be 0 or more");
    *out_rate = Rate(o, step);
    return absl::OkStatus();
  });
}
