// weft_position_mark*.
#include <vector>

#include "src/c_api/context.h"
#include "src/ir/location.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {
constexpr size_t kMostFrames = 256;
const std::string& RootOf(const Context& context) { return context.engine().options().positions_root; }
}  // namespace

extern "C" {

weft_error* weft_position_mark(weft_context* ctx, const char* file, size_t length, int32_t line) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
    if (file == nullptr) return SetMarkedLocation({}), absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const std::string_view name, Text(file, length, "file"));
    if (line < 0) return UserError("line is ", line, "; it must be 0 or more");
    SetMarkedLocation({ir::InternFile(ir::FileBelow(RootOf(*context), name)), static_cast<uint32_t>(line)});
    return absl::OkStatus();
  });
}

weft_error* weft_position_mark_stack(weft_context* ctx, const weft_frame* frames, size_t count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
    if (count > 0) WEFT_NOT_NULL(frames);
    if (count > kMostFrames) return UserError("count is ", count, "; a stack has at most ", kMostFrames, " frames");
    std::vector<ir::StackFrame> stack;
    for (size_t i = 0; i < count; ++i) {
      const weft_frame& frame = frames[i];
      ir::StackFrame& known = stack.emplace_back();
      if (frame.function != nullptr) {
        WEFT_ASSIGN_OR_RETURN(known.function, Text(frame.function, frame.function_length, "frames[].function"));
      }
      if (frame.file != nullptr) {
        WEFT_ASSIGN_OR_RETURN(known.file, Text(frame.file, frame.file_length, "frames[].file"));
        known.file = ir::FileBelow(RootOf(*context), known.file);
      }
      if (frame.line < 0) return UserError("frames[", i, "].line is ", frame.line, "; it must be 0 or more");
      if (known.function.empty() && known.file.empty()) {
        return UserError("frames[", i, "] has neither a function nor a file");
      }
      known.line = static_cast<uint32_t>(frame.line);
    }
    SetMarkedLocation(ir::InternStack(stack));
    return absl::OkStatus();
  });
}

}  // extern "C"
