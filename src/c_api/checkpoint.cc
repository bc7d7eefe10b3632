// weft_checkpoint_*: trees to files and back.
#include <algorithm>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "serialization/checkpoint_writer.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/save_line.h"
#include "src/c_api/callbacks.h"
#include "src/c_api/checkpoint_reader.h"
#include "src/c_api/context.h"
#include "src/c_api/event_object.h"
#include "src/c_api/options.h"
#include "src/c_api/progress.h"
#include "src/c_api/tree_object.h"
#include "src/runtime/held_types.h"
#include "src/runtime/narrow.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// The bytes of a tree's tensors as they were when the save began: aliases do not see later assignments.
class Values final : public TensorSource {
 public:
  static absl::Status CheckEngine(const TensorTree& tree, const lazy::Engine& engine) {
    for (size_t i = 0; i < tree.values.size(); ++i) {
      if (&tree.values[i]->engine() == &engine) continue;
      return UserError("tensor '", tree.tree.PathOf(tree.tree.tensors()[i].node),
                       "' of the tree belongs to another context");
    }
    return absl::OkStatus();
  }
  absl::Status Take(const TensorTree& tree, std::span<const uint32_t> leaves) {
    for (const uint32_t leaf : leaves) {
      lazy::Tensor* value = tree.values[leaf].get();
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> alias, value->engine().Alias(value));
      values_.push_back(std::move(alias));
    }
    return absl::OkStatus();
  }
  // Computes what is pending, all at once.
  absl::Status Evaluate(lazy::Engine& engine) {
    std::vector<lazy::Tensor*> list;
    for (const Ref<lazy::Tensor>& value : values_) list.push_back(value.get());
    if (list.empty()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(computed_, engine.Eval(list));
    return absl::OkStatus();
  }
  // For a thread of the library's: whoever cancels means calls of their own, not a save in the background.
  absl::Status Wait() const { return computed_ ? computed_->Wait() : absl::OkStatus(); }
  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    lazy::Tensor* t = values_[tensor].get();
    if (BitsOf(t->dtype()) < 8) return ReadPacked(*t, offset, out);
    return t->engine().ReadHeld(t, static_cast<int64_t>(offset), out);
  }

 private:
  // Files hold sub-byte elements packed, tensors one a byte.
  static absl::Status ReadPacked(lazy::Tensor& t, uint64_t offset, std::span<std::byte> out) {
    const int64_t each = 8 / BitsOf(t.dtype()), first = static_cast<int64_t>(offset) * each;
    const int64_t count = std::min(static_cast<int64_t>(out.size()) * each, CountOf(t.dims()) - first);
    HostTensor elements(t.dtype(), {count});
    WEFT_RETURN_IF_ERROR(t.engine().ReadBytes(&t, first, elements.mutable_bytes()));
    Pack(t.dtype(), elements.bytes(), out);
    return absl::OkStatus();
  }

  std::vector<Ref<lazy::Tensor>> values_;
  Ref<Event> computed_;
};

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
  return save;
}

// The options of a file in another format than a checkpoint, and who hears how far the save is.
struct Foreign {
  FileFormat format = FileFormat::kWeft;
  Tied tied = Tied::kRefuse;
  weft_progress_fn progress = nullptr;
  void* user_data = nullptr;
  std::shared_ptr<UserData> owner;  // of user_data
};
absl::StatusOr<Foreign> ReadForeign(const weft_checkpoint_options* options) {
  weft_checkpoint_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_checkpoint_options", &o));
  Foreign foreign{.progress = o.progress, .user_data = o.progress_user_data};
  foreign.owner = UserData::Share(o.progress_user_data, o.progress_release);
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

// A save that has been called for: where, what, and its place in the line.
struct Save {
  FilePlace place;
  Tree tree;
  Values values;
  SaveOptions options;
  SaveTurn turn;
  Foreign foreign;
  FlatTree flat;  // of other formats

  absl::Status Run(const SaveTurn::Look& look) {
    WEFT_RETURN_IF_ERROR(turn.Begin(look));
    options.progress = Progress(foreign.progress, foreign.user_data, look);
    const FileFormat format = foreign.format;
    if (format != FileFormat::kWeft) return SaveForeign(format, std::move(place), flat, values, options);
    return SaveCheckpoint(std::move(place), tree, values, options);
  }
};

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_checkpoint_save(weft_context* ctx, const char* path, size_t path_length, weft_tree* tree,
                                 const weft_checkpoint_options* options, weft_event** out_event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Foreign foreign, ReadForeign(options));  // first: it holds what the caller handed over
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(std::string file, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(SaveOptions how, ReadSaveOptions(options));
    WEFT_ASSIGN_OR_RETURN(const TensorTree now, object->Copy());
    WEFT_RETURN_IF_ERROR(now.HasValues());
    WEFT_RETURN_IF_ERROR(Values::CheckEngine(now, context->engine()));
    auto save = std::make_shared<Save>();
    save->options = std::move(how);
    save->options.held = context->engine().options().held;
    WEFT_ASSIGN_OR_RETURN(save->place, PlaceOfCheckpoint(file));
    lazy::Services& services = context->engine().services();
    const SaveTurn::Look look = [&services, before = services.cancels()] { return services.Interrupted(before); };
    // Before the values are taken hold of: what is held cannot be overwritten in place.
    WEFT_ASSIGN_OR_RETURN(save->turn, SaveTurn::Enter(save->place, look));
    std::vector<uint32_t> leaves;
    WEFT_ASSIGN_OR_RETURN(std::tie(save->tree, leaves), now.Tied());
    if (foreign.format != FileFormat::kWeft) {
      WEFT_ASSIGN_OR_RETURN(save->flat, FlattenFor(foreign.format, save->tree, save->options.held, foreign.tied));
    }
    save->foreign = std::move(foreign);
    WEFT_RETURN_IF_ERROR(save->values.Take(now, leaves));
    WEFT_RETURN_IF_ERROR(save->values.Evaluate(context->engine()));
    if (out_event == nullptr) return save->Run(look);
    // The handle first: once the save is under way, nothing of the call may fail.
    auto done = MakeRef<Event>();
    weft_event* event = nullptr;
    WEFT_RETURN_IF_ERROR(MakeEvent(*context, done, &event));
    absl::Cleanup release = [event] { weft_event_release(event); };
    WEFT_RETURN_IF_ERROR(context->InBackground([save = std::move(save), done]() mutable {
      absl::Status status;
      try {
        status = save->values.Wait();
        if (status.ok()) status = save->Run(nullptr);
      } catch (const std::exception&) {
        status = absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
      }
      save.reset();  // what the event says has ended holds nothing any more
      done->Complete(std::move(status));
    }));
    std::move(release).Cancel();
    *out_event = event;
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_load(weft_context* ctx, const char* path, size_t path_length, weft_device* device,
                                 weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_RETURN_IF_ERROR(DeviceOr(device, context->engine()).status());  // before a long file is read for nothing
    ReaderOptions all;
    all.verify = Verify::kAll;
    WEFT_ASSIGN_OR_RETURN(Ref<ReaderObject> reader, ReaderObject::Open(*context, path, path_length, all));
    WEFT_ASSIGN_OR_RETURN(Ref<TreeObject> tree, reader->LoadTree(device));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(std::move(tree)));
    return absl::OkStatus();
  });
}

}  // extern "C"
