// weft_checkpoint_*: trees to files and back.
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/checkpoint_reader.h"
#include "src/c_api/checkpoint_saving.h"
#include "src/c_api/context.h"
#include "src/c_api/event_object.h"
#include "src/c_api/progress.h"
#include "src/c_api/tree_object.h"
#include "weft.h"

namespace weft::c_api {
namespace {

constexpr SpanName kSave{.text = "save checkpoint", .kind = SpanKind::kFile};
constexpr SpanName kRead{.text = "load checkpoint", .kind = SpanKind::kFile};

// A save that has been called for: where, what, and its place in the line.
struct Save {
  SaveTurn turn;  // first, so given up last: the next one is let in when the values are gone
  FilePlace place;
  Tree tree;
  Values values;
  SaveOptions options;
  Foreign foreign;
  FlatTree flat;  // of other formats
  Following following;
  uint64_t trace = 0;

  absl::Status Run(const SaveTurn::Look& look) {
    WEFT_RETURN_IF_ERROR(turn.Begin(look));
    const SpanScope span(trace, kSave);
    options.progress = Progress(foreign.progress, foreign.user_data, look);
    options.wait.look = look;
    const FileFormat format = foreign.format;
    WEFT_RETURN_IF_ERROR(format != FileFormat::kWeft ? SaveForeign(format, std::move(place), flat, values, options)
                                                     : SaveCheckpoint(std::move(place), tree, values, options));
    return following.After(options.durability);
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
    save->trace = context->trace().id();
    save->options = std::move(how);
    save->options.held = context->engine().options().held;
    WEFT_ASSIGN_OR_RETURN(save->following, Following::Of(options, &file));
    WEFT_RETURN_IF_ERROR(save->following.Find(file));
    WEFT_ASSIGN_OR_RETURN(save->place, PlaceOfCheckpoint(file));
    lazy::Services& services = context->engine().services();
    const SaveTurn::Look look = [&services, before = services.cancels()] { return services.Interrupted(before); };
    // Before the values are taken hold of: what is held cannot be overwritten in place.
    const auto most = static_cast<uint64_t>(context->settings().integer(Option::kSaveBytes));
    WEFT_ASSIGN_OR_RETURN(save->turn, SaveTurn::Enter(save->place, look, now.Bytes(), most));
    std::vector<uint32_t> leaves;
    WEFT_ASSIGN_OR_RETURN(std::tie(save->tree, leaves), now.Tied());
    if (foreign.format != FileFormat::kWeft) {
      WEFT_ASSIGN_OR_RETURN(save->flat, FlattenFor(foreign.format, save->tree, save->options.held, foreign.tied));
    }
    save->foreign = std::move(foreign);
    WEFT_RETURN_IF_ERROR(save->values.Take(now, leaves));
    WEFT_RETURN_IF_ERROR(save->values.Evaluate(context->engine()));
    save->options.wait.on_other_thread = context->Starter();
    if (out_event == nullptr) return save->Run(look);
    // The handle first: once the save is under way, nothing of the call may fail.
    auto done = MakeRef<Event>();
    weft_event* event = nullptr;
    WEFT_RETURN_IF_ERROR(MakeEvent(*context, done, &event));
    absl::Cleanup release = [event] { weft_event_release(event); };
    WEFT_RETURN_IF_ERROR(context->InBackground([save = std::move(save), done, look]() mutable {
      absl::Status status;
      try {
        status = save->values.Wait();
        if (status.ok()) status = save->Run(look);
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
    const Interruptible until_cancelled = UntilCancelled(context->engine());
    const SpanScope span(context->trace(), kRead);
    ReaderOptions all;
    all.verify = Verify::kAll;
    WEFT_ASSIGN_OR_RETURN(Ref<ReaderObject> reader, ReaderObject::Open(*context, path, path_length, all));
    WEFT_ASSIGN_OR_RETURN(Ref<TreeObject> tree, reader->LoadTree(device));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(std::move(tree)));
    return absl::OkStatus();
  });
}

}  // extern "C"
