// The event behind weft_event.
#pragma once

#include <memory>

#include "src/c_api/context.h"
#include "src/runtime/event.h"
#include "src/runtime/mutex.h"

namespace weft::c_api {

struct AnyDone;

// Thread rule: any thread.
class EventObject final : public RefCounted {
 public:
  EventObject(Ref<Event> event, Ref<lazy::Engine> engine) : event_(std::move(event)), engine_(std::move(engine)) {}

  Event& event() { return *event_; }
  lazy::Engine& engine() const { return *engine_; }
  const Ref<Event>& shared() const { return event_; }
  // A descriptor that becomes readable; made on first demand.
  absl::StatusOr<int> Fd();
  // Tells `any` once this has happened, as number `index`, until Unwatch. However often somebody waits among others, the
  // event gets one continuation.
  void Watch(AnyDone* any, size_t index);
  void Unwatch(AnyDone* any);

 private:
  struct Descriptor;
  struct Watchers;
  Ref<Event> event_;
  Ref<lazy::Engine> engine_;  // devices must not go before their work
  Mutex mutex_;
  std::shared_ptr<Descriptor> descriptor_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Watchers> watchers_ ABSL_GUARDED_BY(mutex_);
};
template <>
struct HandleTraits<weft_event> {
  using Object = EventObject;
  static constexpr HandleType kType = HandleType::kEvent;
  static const ForkGuard* ForkOf(const EventObject& object) { return &object.engine().services().fork(); }
};

// Makes the optional out-parameter of asynchronous calls: nothing if out is NULL.
absl::Status MakeEvent(Context& context, Ref<Event> event, weft_event** out);

}  // namespace weft::c_api
