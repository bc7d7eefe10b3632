// Events that stand for several.
#include "src/runtime/event.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Event, OfAllIsDoneWithTheLastAndHasTheFirstFailure) {
  const Ref<Event> a = MakeRef<Event>(), b = MakeRef<Event>(), c = MakeRef<Event>();
  const Ref<Event> all = Event::All(std::vector<Ref<Event>>{a, b, a, c});
  c->Complete(absl::DataLossError("first"));
  a->Complete(absl::InternalError("second"));
  EXPECT_FALSE(all->done());
  b->Complete(absl::OkStatus());
  ASSERT_TRUE(all->done());
  EXPECT_EQ(all->status(), absl::DataLossError("first"));
  EXPECT_TRUE(Event::All({})->done());
}

// As a launch on a mesh has it for each of its devices: who has seen the event done must find the joint one done. What a callback sees
// that was there before All is what another thread may see between the two.
TEST(Event, OfAllWhereAllAreOneIsDoneTogetherWithIt) {
  const Ref<Event> one = MakeRef<Event>();
  Ref<Event> all;
  bool together = false;
  one->OnDone([&](const absl::Status&) { together = all->done(); });
  all = Event::All(std::vector<Ref<Event>>{one, one, one, one});
  one->Complete(absl::UnavailableError("device 1"));
  EXPECT_TRUE(together);
  EXPECT_EQ(all->status(), absl::UnavailableError("device 1"));
}

}  // namespace
}  // namespace weft
