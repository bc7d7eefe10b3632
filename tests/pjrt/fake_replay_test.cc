// Steps on a plugin of several devices: each device's are replayed, and the plugin gets the launches that recorded ones make.
#include "tests/pjrt/fake_world.h"

namespace weft::pjrt {
namespace {

// 3 (x + x) of x = n, 2 n on the device, up to its barrier.
std::vector<float> StepOn(World& w, size_t device, float n) {
  const T x = w.F32({2}, {n, 2 * n}, static_cast<int>(device));
  const T three = w.F32({}, {3}, static_cast<int>(device));
  const T y = w.Op("mul", {w.Tmp("add", {x, x}), three});
  EXPECT_TRUE(w.engine->Sync(w.engine->devices()[device]).ok());
  return w.Read(y);
}

TEST(FakeReplay, EachDeviceOfAPluginReplaysItsSteps) {
  World w({}, Fake("devices=4"));
  ASSERT_EQ(w.engine->devices().size(), 4u);
  w.Sync();
  const Since launches("launches");
  for (int i = 0; i < 5; ++i) {
    for (const size_t device : {2, 0, 3}) {
      const auto n = static_cast<float>(i) + static_cast<float>(device);
      EXPECT_EQ(StepOn(w, device, n), (std::vector<float>{6 * n, 12 * n})) << i << " on " << device;
    }
  }
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), 3 * 4);
  EXPECT_EQ(w.Count(Counter::kProgramsCompiled), 1) << "one program for all devices";
  EXPECT_EQ(launches(), 3 * 5);
}

}  // namespace
}  // namespace weft::pjrt
