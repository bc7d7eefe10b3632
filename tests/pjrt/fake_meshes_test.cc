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

// The calls of the plugin while a value of four devices goes to others.
struct Moves {
  Since between{"PJRT_Buffer_CopyToDevice"}, down{"PJRT_Buffer_ToHostBuffer"}, up{"PJRT_Client_BufferFromHostBuffer"},
      launches{"PJRT_LoadedExecutable_Execute"};
};

T CopyTo(World& w, const T& x, const lazy::DeviceMesh* mesh, std::string_view spec) {
  auto copy = w.engine->CopyOver(x.get(), lazy::Where(mesh), spec);
  EXPECT_TRUE(copy.ok()) << copy.status();
  return copy.ok() ? *std::move(copy) : nullptr;
}

TEST(PjrtFakeMeshes, EqualPartsGoFromDeviceToDeviceOrStayWhereTheyAre) {
  World w({}, Fake("devices=4"));
  OnMesh on(w, {0, 1}, "a=2"), apart(w, {2, 3}, "b=2"), turned(w, {1, 0}, "c=2");
  T x = on.F32({4}, {1, 2, 3, 4}, "a");
  const Moves moves;
  T far = CopyTo(w, x, apart.mesh, "b");
  EXPECT_EQ(moves.between(), 2);
  T near = CopyTo(w, far, apart.mesh, "b"), again = CopyTo(w, x, turned.mesh, "-");
  // The second device has the first half of `turned` on the other one and the other way round: each part is sent once and joined.
  EXPECT_EQ(moves.between(), 4);
  EXPECT_EQ(moves.launches(), 2);
  EXPECT_EQ(moves.down(), 0);
  EXPECT_EQ(w.engine->CounterOf("bytes_between_devices"), 32);
  for (const T& copy : {far, near, again}) EXPECT_THAT(w.Read(copy), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(w.Read(w.Op("add", {far, near})), ElementsAre(2, 4, 6, 8));
}

TEST(PjrtFakeMeshes, ABoxIsCutWhereItIsAndOnlyItIsSent) {
  World w({}, Fake("devices=3"));
  OnMesh apart(w, {1, 2}, "b=2");
  T x = w.F32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, 0);
  const Moves moves;
  const int64_t before = Calls("to_device");
  T cut = CopyTo(w, x, apart.mesh, "-,b");
  EXPECT_EQ(moves.between(), 2);
  EXPECT_EQ(moves.launches(), 1);
  EXPECT_EQ(w.engine->CounterOf("bytes_between_devices"), 32);
  EXPECT_LT(Calls("to_device") - before, 32) << "the starts alone";
  EXPECT_THAT(w.Read(cut), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(PjrtFakeMeshes, WhatDevicesDoNotCopyGoesOverTheHost) {
  for (const char* fault : {"fail=PJRT_Buffer_CopyToDevice:1:13", "fail=PJRT_Buffer_CopyToDevice:2:8", "fail=copy:2:13",
                            "silent=PJRT_Buffer_CopyToDevice", "last_zero=PJRT_Buffer_CopyToDevice"}) {
    SCOPED_TRACE(fault);
    World w({}, Fake("devices=4"));
    OnMesh on(w, {0, 1}, "a=2"), apart(w, {2, 3}, "b=2");
    T x = on.F32({4}, {1, 2, 3, 4}, "a");
    EXPECT_THAT(w.Read(x), ElementsAre(1, 2, 3, 4));
    Faults(std::string("devices=4;") + fault);
    // Null: nothing was made, and the caller goes over the host.
    EXPECT_EQ(CopyTo(w, x, apart.mesh, "b"), nullptr);
    Faults("devices=4");
    EXPECT_THAT(w.Read(CopyTo(w, x, apart.mesh, "b")), ElementsAre(1, 2, 3, 4));
  }
}

TEST(PjrtFakeMeshes, AValueWhoseLaunchFailedIsMadeAgainAndThenCopied) {
  World w({}, Fake("devices=4"));
  OnMesh on(w, {0, 1}, "a=2"), apart(w, {2, 3}, "b=2");
  T x = on.F32({4}, {1, 2, 3, 4}, "a");
  Faults("devices=4;fail=launch on 1:1:14");
  T doubled = w.Op("add", {x, x}), squared = w.Op("mul", {x, x});
  on.Sync();
  EXPECT_THAT(w.Read(CopyTo(w, doubled, apart.mesh, "b")), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(w.Read(CopyTo(w, squared, apart.mesh, "-")), ElementsAre(1, 4, 9, 16));
  Faults("devices=4");
}

}  // namespace
}  // namespace weft::pjrt
