// weft_function_key, weft_function_save, weft_function_load, weft_function_from_text, weft_program_compare.
#include "serialization/function_file.h"
#include "serialization/checksum.h"
#include "serialization/framing.h"
#include "src/c_api/cache_tree.h"
#include "src/c_api/function_object.h"
#include "src/c_api/program_file.h"
#include "src/c_api/tree_object.h"
#include "src/compiler/canonical.h"
#include "src/compiler/entry_difference.h"
#include "src/compiler/function_difference.h"
#include "src/ir/rewrite.h"
#include "src/ir/text.h"
#include "src/runtime/io.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// Says how the programs differ, and of entries of the compile cache in which other parts their keys do.
absl::Status AddDifference(const ProgramFile& was, const ProgramFile& is, Tree* tree) {
  WEFT_ASSIGN_OR_RETURN(const auto found, compiler::DifferenceOf(was.function, is.function));
  const auto text = [&](Tree::NodeId dict, std::string_view key, std::string_view value) {
    return tree->Add(dict, key, TextOrBytes(value)).status();
  };
  const Tree::NodeId root = Tree::root();
  WEFT_RETURN_IF_ERROR(tree->Add(root, "equal", Tree::Bool(!found.has_value())).status());
  WEFT_RETURN_IF_ERROR(text(root, "reason", found ? compiler::NameOf(found->reason) : ""));
  WEFT_RETURN_IF_ERROR(text(root, "text", found ? found->text : "the programs are equal"));
  WEFT_RETURN_IF_ERROR(text(root, "position", found ? ir::ToString(found->at) : ""));
  WEFT_RETURN_IF_ERROR(text(root, "hint", found ? compiler::HintOf(found->reason) : ""));
  WEFT_ASSIGN_OR_RETURN(const Tree::NodeId parts, tree->Add(root, "parts", Tree::List()));
  if (was.key.empty() || is.key.empty()) return absl::OkStatus();
  for (const compiler::PartDifference& part : compiler::DifferencesOf(is.key, was.key)) {
    if (part.part == "program") continue;
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId dict, tree->Append(parts, Tree::Dict()));
    WEFT_RETURN_IF_ERROR(text(dict, "part", part.part));
    WEFT_RETURN_IF_ERROR(text(dict, "before", part.there));
    WEFT_RETURN_IF_ERROR(text(dict, "now", part.here));
  }
  return absl::OkStatus();
}

}  // namespace

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
    WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> read, FunctionOfFile(*context, file));
    return GiveOut(*context, ir::InternAll(*WithoutRoles(*read)), /*draws=*/false, out);
  });
}

weft_error* weft_function_from_text(weft_context* ctx, const char* text, size_t length, weft_function** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const std::string_view program, Text(text, length, "text"));
    WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> read, FunctionOfText(*context, program));
    return GiveOut(*context, ir::InternAll(*WithoutRoles(*read)), /*draws=*/false, out);
  });
}

weft_error* weft_program_compare(weft_context* ctx, const char* before_path, size_t before_path_length,
                                 const char* now_path, size_t now_path_length, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const std::string file_before, Path(before_path, before_path_length));
    WEFT_ASSIGN_OR_RETURN(const std::string file_now, Path(now_path, now_path_length));
    WEFT_ASSIGN_OR_RETURN(const ProgramFile was, ReadProgramFile(*context, file_before));
    WEFT_ASSIGN_OR_RETURN(const ProgramFile is, ReadProgramFile(*context, file_now));
    TensorTree tree;
    WEFT_RETURN_IF_ERROR(AddDifference(was, is, &tree.tree));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

}  // extern "C"
