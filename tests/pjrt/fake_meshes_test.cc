// The engine on several devices of the fake plugin: parts go where they belong, and a device that fails says which it is.
#include "tests/pjrt/fake_world.h"

namespace weft::pjrt {
namespace {

// A mesh of these devices, and values on it.
struct OnMesh {
  OnMesh(World& w, std::vector<size_t> ids, const char* axes) : w(w) {
    std::vector<Device*> devices;
    for (const size_t id : ids) devices.push_back(w.engine->devices()[id]);
    const auto made = w.engine->Mesh(devices, ir::ParseMesh(axes).value());
    EXPECT_TRUE(made.ok()) << made.status();
    mesh = *made;
  }
  T F32(Dims dims, std::vector<float> values, std::string_view spec) {
    auto tensor = w.engine->FromHost(lazy::Where(mesh), DType::kF32, dims, std::as_bytes(std::span(values)), {}, spec);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *std::move(tensor);
  }
  void Sync() const { ASSERT_TRUE(w.engine->Sync(lazy::Where(mesh)).ok()); }

  World& w;
  const lazy::DeviceMesh* mesh = nullptr;
};

TEST(PjrtFakeMeshes, AProgramOfFourDevicesIsOneLaunchOfParts) {
  World w({}, Fake("devices=4"));
  OnMesh on(w, {0, 1, 2, 3}, "a=2,b=2");
  std::vector<float> values(24), doubled(24);
  std::iota(values.begin(), values.end(), 0.0f);
  for (size_t i = 0; i < 24; ++i) doubled[i] = 2 * values[i];
  T x = on.F32({4, 6}, values, "a,b");
  const Since executes("PJRT_LoadedExecutable_Execute");
  T y = w.Op("add", {x, x});
  on.Sync();
  EXPECT_EQ(executes(), 1);
  EXPECT_EQ(w.Read(y), doubled);
  const auto lying = w.engine->LyingOf(y.get());
  ASSERT_TRUE(lying.ok());
  EXPECT_EQ(ir::ToString(on.mesh->axes(), lying->placement.sharding(), 2), "a,b");
  for (const Ref<Buffer>& part : lying->shards) EXPECT_EQ(part->dims(), (Dims{2, 3}));
}

TEST(PjrtFakeMeshes, ADeviceThatFailsInALaunchIsNamedAndTheOthersGoOn) {
  World w({}, Fake("devices=4"));
  OnMesh on(w, {0, 1, 2, 3}, "a=4"), half(w, {2, 3}, "a=2");
  T x = on.F32({4}, {1, 2, 3, 4}, "a"), kept = half.F32({2}, {5, 6}, "a"), alone = w.F32({1}, {7}, 0);
  T first = w.Op("add", {x, x});
  on.Sync();
  EXPECT_THAT(w.Read(first), ElementsAre(2, 4, 6, 8));
  Faults("devices=4;fail=launch on 1:1:14");
  T second = w.Op("mul", {x, x}), more = w.Op("add", {kept, kept}), own = w.Op("add", {alone, alone});
  on.Sync();
  EXPECT_THAT(std::string(ReadOf(w, second).message()), AllOf(HasSubstr("a launch on pjrt:0 to pjrt:3"), HasSubstr(", pjrt:1: "), HasSubstr("launch on 1 fails")));
  // Values of other devices, before and after.
  EXPECT_THAT(w.Read(kept), ElementsAre(5, 6));
  EXPECT_THAT(w.Read(more), ElementsAre(10, 12));
  EXPECT_THAT(w.Read(own), ElementsAre(14));
  EXPECT_THAT(w.Read(alone), ElementsAre(7));
  // Made again by itself.
  EXPECT_THAT(w.Read(second), ElementsAre(1, 4, 9, 16));
  // A launch that needs a device that is gone is refused, and changes nothing.
  Faults("devices=4;dies=1:1");
  T third = w.Op("sub", {x, x});
  EXPECT_THAT(std::string(ReadOf(w, third).message()), HasSubstr("device 1 is gone"));
  Faults("devices=4");
  EXPECT_THAT(w.Read(x), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(w.Read(third), ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace weft::pjrt
