// See gather_results.h.
#include "src/backends/cpu/kernels/conv/gather_results.h"

#include <cstring>

namespace weft::cpu {

void GatherResults::Finish(const Phase& phase, Range rows, const char* wide) const {
  if (phase.empty()) {
    Zero(phase, rows);
  } else if (wide != nullptr) {
    NarrowRows(phase, rows, wide);
  }
  if (call_.epilogue.run == nullptr || plan_.Ends(phase)) return;
  if (plan_.phases.size() == 1) return Follow(rows.begin, rows.size());
  PixelCursor cursor(phase, rows.begin);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    Follow(cursor.Offset(operands_.to) / call_.ToChannels(), 1);
    cursor.Advance();
  }
}

void GatherResults::Zero(const Phase& phase, Range rows) const {
  const int64_t bytes = plan_.ResultBytes();
  PixelCursor cursor(phase, rows.begin);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::memset(static_cast<char*>(call_.to) + (cursor.Offset(operands_.to) + channels_.begin) * bytes, 0,
                channels_.size() * bytes);
    cursor.Advance();
  }
}

void GatherResults::NarrowRows(const Phase& phase, Range rows, const char* wide) const {
  const int64_t channel = channels_.begin, channels = channels_.size();
  const int64_t all = call_.ToChannels(), stride = plan_.WideStride(phase) / 4;
  const auto* const from = reinterpret_cast<const float*>(wide);
  auto* const to = static_cast<uint16_t*>(call_.to);
  if (plan_.phases.size() == 1) {  // every output pixel, in order
    const bool run = channels == all && stride == all;
    Narrow(call_.output, from, stride, to + rows.begin * all + channel, all, run ? 1 : rows.size(),
           run ? rows.size() * all : channels);
    return;
  }
  PixelCursor cursor(phase, rows.begin);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    Narrow(call_.output, from + (row - rows.begin) * stride, 0, to + cursor.Offset(operands_.to) + channel, 0, 1,
           channels);
    cursor.Advance();
  }
}

}  // namespace weft::cpu
