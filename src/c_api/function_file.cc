// weft_function_key, weft_function_save, weft_function_load.
#include "serialization/function_file.h"
#include "serialization/checksum.h"
#include "serialization/framing.h"
#include "src/c_api/function_object.h"
#include "src/compiler/canonical.h"
#include "src/ir/rewrite.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/registry.h"
#include "src/runtime/io.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// The one function of a file's text, which may be anything.
absl::StatusOr<Ref<const ir::Function>> FromText(const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(const ir::Module module, ir::Parse(text, ops::FindOp));
  if (const absl::Status status = ir::Verify(module); !status.ok()) return UserError(status.message());
  if (module.functions.size() != 1 || module.argument_words != 0) {
    return UserError("the text is a program of ", module.functions.size(), " functions and ", module.argument_words,
                     " words of arguments, and no function");
  }
  return module.functions[0];
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_function_key(weft_function* function, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    std::string canonical;
    compiler::AppendCanonical(*f->function, &canonical);
    const Hash128 hash = Checksum128(std::as_bytes(std::span(canonical)));
    return MakeBlob(ToHex(std::as_bytes(std::span(&hash, 1))), out);
  });
}

weft_error* weft_function_save(weft_function* function, const char* path, size_t path_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<FunctionObject> f, Get(function, "function"));
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, path_length));
    ir::Module module;
    module.functions.push_back(f->function);
    return WriteFunctionFile(PosixFileSystem(), file, ir::Print(module));
  });
}

weft_error* weft_function_load(weft_context* ctx, const char* path, size_t path_length, weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const std::string text, ReadFunctionFile(PosixFileSystem(), file));
    absl::StatusOr<Ref<const ir::Function>> read = FromText(text);
    if (!read.ok()) return UserErrorOf(read.status().code(), "'", file, "': ", read.status().message());
    if (const absl::Status known = ops::CheckCustomCalls(**read, context->custom()); !known.ok()) {
      return UserErrorOf(known.code(), "'", file, "': ", known.message());
    }
    return GiveOut(*context, ir::InternAll(**read), /*draws=*/false, out);
  });
}

}  // extern "C"
