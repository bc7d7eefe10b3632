// See checkpoint_saving.h.
#include "src/c_api/checkpoint_saving.h"

#include <algorithm>

#include "src/c_api/options.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/narrow.h"

namespace weft::c_api {
namespace {

// Files hold sub-byte elements packed, tensors one a byte.
absl::Status ReadPacked(lazy::Tensor& t, uint64_t offset, std::span<std::byte> out) {
  const int64_t each = 8 / BitsOf(t.dtype()), first = static_cast<int64_t>(offset) * each;
  const int64_t count = std::min(static_cast<int64_t>(out.size()) * each, CountOf(t.dims()) - first);
  HostTensor elements(t.dtype(), {count});
  WEFT_RETURN_IF_ERROR(t.engine().ReadBytes(&t, first, elements.mutable_bytes()));
  Pack(t.dtype(), elements.bytes(), out);
  return absl::OkStatus();
}

}  // namespace

absl::Status Values::CheckEngine(const TensorTree& tree, const lazy::Engine& engine) {
  for (size_t i = 0; i < tree.values.size(); ++i) {
    if (&tree.values[i]->engine() == &engine) continue;
    return UserError("tensor '", tree.tree.PathOf(tree.tree.tensors()[i].node),
                     "' of the tree belongs to another context");
  }
  return absl::OkStatus();
}

absl::Status Values::Take(const TensorTree& tree, std::span<const uint32_t> leaves) {
  values_.reserve(leaves.size());
  for (const uint32_t leaf : leaves) {
    lazy::Tensor* value = tree.values[leaf].get();
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> alias, value->engine().Alias(value));
    values_.push_back(std::move(alias));
  }
  return absl::OkStatus();
}

absl::Status Values::Evaluate(lazy::Engine& engine) {
  std::vector<lazy::Tensor*> list;
  list.reserve(values_.size());
  for (const Ref<lazy::Tensor>& value : values_) list.push_back(value.get());
  if (list.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(computed_, engine.Eval(list));
  return absl::OkStatus();
}

absl::Status Values::Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) {
  lazy::Tensor* t = values_[tensor].get();
  if (BitsOf(t->dtype()) < 8) return ReadPacked(*t, offset, out);
  return t->engine().ReadHeld(t, static_cast<int64_t>(offset), out);
}

absl::StatusOr<bool> ReadCompress(weft_compress compress, std::string_view options) {
  const auto number = static_cast<uint32_t>(compress);
  if (number <= static_cast<uint32_t>(WEFT_COMPRESS_ZSTD)) return number != 0;
  return UserError(options, ".compress is ", number, ", which no weft_compress is");
}

absl::StatusOr<SaveOptions> ReadSaveOptions(const weft_checkpoint_options* options) {
  weft_checkpoint_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_checkpoint_options", &o));
  SaveOptions save;
  if (o.durable != 0 && o.durable != -1)
    return UserError("weft_checkpoint_options.durable is ", o.durable, "; it is 0 or -1");
  save.durability = o.durable == 0 ? Durability::kPower : Durability::kProcess;
  save.step = o.step;
  save.producer = absl::StrCat("weft ", weft_release_version());
  if (o.metadata_count > 0 && o.metadata == nullptr) return NullArgument("weft_checkpoint_options.metadata");
  WEFT_RETURN_IF_ERROR(CheckedLength("weft_checkpoint_options.metadata", o.metadata_count, kMostEntries));
  for (uint64_t i = 0; i < o.metadata_count; ++i) {
    const weft_setting& m = o.metadata[i];
    WEFT_ASSIGN_OR_RETURN(std::string_view name, Text(m.name, m.name_length, "metadata[].name"));
    WEFT_ASSIGN_OR_RETURN(std::string_view value, Text(m.value, m.value_length, "metadata[].value"));
    save.user.emplace_back(name, value);
  }
  WEFT_ASSIGN_OR_RETURN(save.compress, ReadCompress(o.compress, "weft_checkpoint_options"));
  if (o.base != nullptr) {
    WEFT_ASSIGN_OR_RETURN(save.base, Text(o.base, o.base_length, "weft_checkpoint_options.base"));
    if (!IsNameBeside(save.base)) {
      return UserError("weft_checkpoint_options.base is '", save.base,
                       "'; it is the name of a file beside the new one");
    }
  }
  if ((save.compress || !save.base.empty()) && static_cast<FileFormat>(o.format) != FileFormat::kWeft) {
    return UserErrorOf(absl::StatusCode::kUnimplemented,
                       "weft_checkpoint_options.compress and base: only Weft's own format has parts");
  }
  return save;
}

absl::StatusOr<Following> Following::Of(const weft_checkpoint_options* options, std::string* path) {
  weft_checkpoint_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_checkpoint_options", &o));
  Following following;
  following.step_ = o.step;
  following.retention_ = {o.keep_last, o.keep_every};
  if (o.keep_last < -1) return UserError("weft_checkpoint_options.keep_last is ", o.keep_last, "; it is -1 or more");
  if (o.keep_every < 0) return UserError("weft_checkpoint_options.keep_every is ", o.keep_every, "; it is 0 or more");
  if (o.keep_last != 0) {
    if (static_cast<FileFormat>(o.format) != FileFormat::kWeft) {
      return UserErrorOf(
          absl::StatusCode::kUnimplemented,
          "weft_checkpoint_options.keep_last: only checkpoints of Weft's own format are kept by their step");
    }
    if (o.step < 0) return UserError("weft_checkpoint_options.step is ", o.step, "; with keep_last it is 0 or more");
    WEFT_ASSIGN_OR_RETURN(following.by_step_, StepName::Of(*path));
    *path = following.by_step_->Path(o.step);
  } else if (o.keep_every != 0) {
    return UserError(
        "weft_checkpoint_options.keep_every says what stays of the files that keep_last lets go; that is 0");
  }
  if (o.pointer != nullptr) {
    WEFT_ASSIGN_OR_RETURN(following.pointer_, Text(o.pointer, o.pointer_length, "weft_checkpoint_options.pointer"));
    if (!IsNameBeside(following.pointer_) || following.pointer_ == BaseNameOf(*path)) {
      return UserError("weft_checkpoint_options.pointer is '", following.pointer_,
                       "'; it is a name beside the file, and another than the file's");
    }
  }
  return following;
}

absl::Status Following::Find(const std::string& path) {
  if (!any()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(place_, PlaceOfCheckpoint(path));
  name_ = place_->name;
  if (pointer_.empty()) return absl::OkStatus();
  if (!IsNameBeside(name_)) return UserError("the file's name '", name_, "' cannot stand in a pointer");
  WEFT_ASSIGN_OR_RETURN(pointed_, PlaceOfCheckpoint(JoinPath(DirectoryOf(path), pointer_)));
  return absl::OkStatus();
}

// The pointer first: what it named until then may go afterwards.
absl::Status Following::After(Durability durability) {
  if (pointed_.has_value()) {
    const std::string path = pointed_->path, text = PointerTo(name_);
    const absl::Status status = [&]() -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(*std::move(pointed_), {.durability = durability}));
      WEFT_RETURN_IF_ERROR(file.file().Write(std::as_bytes(std::span(text))));
      return file.Commit();
    }();
    if (!status.ok()) {
      return WithText(status, absl::StrCat("the checkpoint '", name_, "' is there, but not the pointer '", path,
                                           "': ", status.message()));
    }
  }
  if (by_step_.has_value()) RemoveOlder(*place_, *by_step_, step_, retention_);
  return absl::OkStatus();
}

absl::StatusOr<Foreign> ReadForeign(const weft_checkpoint_options* options) {
  weft_checkpoint_options o;
  const absl::Status read = ReadOptions(options, sizeof(o), "weft_checkpoint_options", &o);
  Foreign foreign{.progress = o.progress, .user_data = o.progress_user_data};
  // Options that are refused for what else they say name their release all the same.
  foreign.owner = UserData::Share(o.progress_user_data, o.progress_release);
  WEFT_RETURN_IF_ERROR(read);
  if (static_cast<uint32_t>(o.format) > static_cast<uint32_t>(FileFormat::kGguf)) {
    return UserError("weft_checkpoint_options.format is ", static_cast<uint32_t>(o.format),
                     ", which no weft_file_format is");
  }
  if (static_cast<uint32_t>(o.tied) > static_cast<uint32_t>(Tied::kOnce)) {
    return UserError("weft_checkpoint_options.tied is ", static_cast<uint32_t>(o.tied), ", which no weft_tied is");
  }
  foreign.format = static_cast<FileFormat>(o.format);
  foreign.tied = static_cast<Tied>(o.tied);
  return foreign;
}

}  // namespace weft::c_api
