// weft_checkpoint_convert and weft_checkpoint_salvage: files to files, without a tensor in between.
#include "absl/strings/str_cat.h"
#include "serialization/checkpoint_salvage.h"
#include "serialization/interchange/convert.h"
#include "serialization/save_line.h"
#include "src/c_api/checkpoint_saving.h"
#include "src/c_api/context.h"
#include "src/c_api/options.h"
#include "src/c_api/progress.h"
#include "src/c_api/tree_object.h"
#include "weft.h"

namespace weft::c_api {
namespace {

constexpr std::string_view kOptions = "weft_convert_options";

absl::StatusOr<ConvertTensor> ReadTensor(const weft_convert_tensor& t, TensorFile& file, bool rest) {
  ConvertTensor tensor;
  WEFT_ASSIGN_OR_RETURN(const std::string_view path, Text(t.path, t.path_length, "tensors[].path"));
  WEFT_ASSIGN_OR_RETURN(const std::optional<uint32_t> id, file.Find(path));
  if (!id) return UserErrorOf(absl::StatusCode::kNotFound, "the file has no tensor '", path, "'");
  tensor.id = *id;
  tensor.name = file.tensor(*id).name;
  if (t.name != nullptr) {
    WEFT_ASSIGN_OR_RETURN(tensor.name, Text(t.name, t.name_length, "tensors[].name"));
    if (rest) return UserError(kOptions, ": with rest = 1 names stay; tensor '", path, "' has another");
  }
  if (static_cast<uint32_t>(t.dtype) != 0) {
    WEFT_ASSIGN_OR_RETURN(tensor.dtype, CheckedDType(static_cast<uint32_t>(t.dtype)));
  }
  return tensor;
}

absl::StatusOr<ConvertOptions> ReadConvertOptions(const weft_convert_options& o, TensorFile& file) {
  ConvertOptions options;
  const auto format = static_cast<uint32_t>(o.format), tied = static_cast<uint32_t>(o.tied);
  if (format > static_cast<uint32_t>(FileFormat::kGguf)) {
    return UserError(kOptions, ".format is ", format, ", which no weft_file_format is");
  }
  if (tied > static_cast<uint32_t>(Tied::kOnce)) {
    return UserError(kOptions, ".tied is ", tied, ", which no weft_tied is");
  }
  for (const auto& [name, value] : {std::pair("nest", o.nest), std::pair("rest", o.rest)}) {
    if (value != 0 && value != 1) return UserError(kOptions, ".", name, " is ", value, "; it is 0 or 1");
  }
  if (o.durable != 0 && o.durable != -1) return UserError(kOptions, ".durable is ", o.durable, "; it is 0 or -1");
  if (o.tensor_count > 0 && o.tensors == nullptr) return NullArgument("weft_convert_options.tensors");
  WEFT_RETURN_IF_ERROR(CheckedLength("weft_convert_options.tensors", o.tensor_count, kMostEntries));
  options.format = static_cast<FileFormat>(format);
  options.tied = static_cast<Tied>(tied);
  options.nest = o.nest == 1;
  options.rest = o.rest == 1 || o.tensor_count == 0;
  options.shard_bytes = o.shard_bytes;
  for (uint64_t i = 0; i < o.tensor_count; ++i) {
    WEFT_ASSIGN_OR_RETURN(ConvertTensor tensor, ReadTensor(o.tensors[i], file, options.rest));
    options.tensors.push_back(std::move(tensor));
  }
  return options;
}

// The words of the old file that the new one has a place for: texts, of which a checkpoint takes 1 MiB and a tokenizer has more.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Words(const TensorFile& file, FileFormat format) {
  constexpr size_t kMostWords = 4096, kMostBytes = 1 << 20;
  std::vector<std::pair<std::string, std::string>> words;
  if (format == FileFormat::kNpy || format == FileFormat::kNpz) return words;
  WEFT_ASSIGN_OR_RETURN(const Tree metadata, file.Metadata());
  size_t bytes = 0;
  const Tree::NodeId first = metadata.node(Tree::root()).first_child;
  for (Tree::NodeId at = first; at != Tree::kNoNode; at = metadata.node(at).next_sibling) {
    const Tree::Node& word = metadata.node(at);
    const bool own = word.key == "general.alignment" || word.key.starts_with("split.");  // of a GGUF file's layout
    if (word.kind != Tree::Kind::kText || own || words.size() == kMostWords) continue;
    if (bytes + word.key.size() + word.text.size() > kMostBytes) continue;
    bytes += word.key.size() + word.text.size();
    words.emplace_back(word.key, word.text);
  }
  return words;
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_checkpoint_convert(weft_context* ctx, const char* path, size_t path_length, const char* to,
                                    size_t to_length, const weft_convert_options* options) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(const std::string from, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(to, to_length));
    weft_convert_options o;
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_convert_options", &o));
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorFile> reader, OpenTensorFile(from));
    WEFT_ASSIGN_OR_RETURN(const ConvertOptions convert, ReadConvertOptions(o, *reader));
    lazy::Services& services = context->engine().services();
    services.StartsWork();
    const SaveTurn::Look look = [&services, before = services.cancels()] { return services.Interrupted(before); };
    WEFT_ASSIGN_OR_RETURN(const FilePlace place, PlaceOfCheckpoint(file));
    WEFT_ASSIGN_OR_RETURN(SaveTurn turn, SaveTurn::Enter(place, look));
    WEFT_RETURN_IF_ERROR(turn.Begin(look));
    SaveOptions save;
    save.durability = o.durable == 0 ? Durability::kPower : Durability::kProcess;
    save.step = reader->header().step;
    save.producer = absl::StrCat("weft ", weft_release_version());
    WEFT_ASSIGN_OR_RETURN(save.user, Words(*reader, convert.format));
    save.progress = Progress(o.progress, o.progress_user_data, look);
    save.wait = {look, context->Starter()};
    WEFT_ASSIGN_OR_RETURN(save.compress, ReadCompress(o.compress, "weft_convert_options"));
    if (save.compress && convert.format != FileFormat::kWeft) {
      return UserErrorOf(absl::StatusCode::kUnimplemented,
                         "weft_convert_options.compress: only Weft's own format has parts");
    }
    return ConvertFile(*reader, file, convert, save);
  });
}

weft_error* weft_checkpoint_salvage(weft_context* ctx, const char* path, size_t path_length, const char* to,
                                    size_t to_length, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(const std::string from, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(to, to_length));
    SaveOptions save;
    save.producer = absl::StrCat("weft ", weft_release_version());
    WEFT_ASSIGN_OR_RETURN(const Salvaged salvaged, SalvageCheckpoint(from, file, save));
    TensorTree report;
    for (const auto& [key, paths] : {std::pair("whole", &salvaged.whole), std::pair("lost", &salvaged.lost)}) {
      WEFT_ASSIGN_OR_RETURN(const Tree::NodeId list, report.tree.Add(Tree::root(), key, Tree::List()));
      for (const std::string& name : *paths) WEFT_RETURN_IF_ERROR(report.tree.Append(list, Tree::Text(name)).status());
    }
    WEFT_RETURN_IF_ERROR(report.tree.Add(Tree::root(), "problem", Tree::Text(salvaged.problem)).status());
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(report))));
    return absl::OkStatus();
  });
}

}  // extern "C"
