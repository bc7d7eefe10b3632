// Files read piece by piece, and memory shared in DLPack's form, both ways. The structs of DLPack are written out here from its
// specification (version 1), so that the test shares nothing with the header.
#include <filesystem>
#include <fstream>
#include <memory>

#include "check.hpp"

struct Device {
  std::int32_t type, id;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Plain {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  std::uint32_t major, minor;
  void* owner;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  Plain tensor;
};

namespace {

int ended = 0;

// Memory of "another library": 2 x 3 floats, aligned as Weft wants it, whose end is counted.
struct Foreign {
  alignas(64) float data[16] = {1, 2, 3, 4, 5, 6};
  std::int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  DLManagedTensorVersioned managed{};

  Foreign() {
    managed.major = 1;
    managed.owner = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++ended;
      delete static_cast<Foreign*>(self->owner);
    };
    managed.tensor = {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};
  }
};

template <class F>
weft::code refused(F f) {
  try {
    f();
  } catch (const weft::error& failed) {
    return failed.code();
  }
  return weft::code::ok;
}

void lending(const weft::context& ctx) {
  weft::lent kept;
  {
    const weft::tensor x = weft::tensor(ctx, {1.f, 2.f, 3.f, 4.f}, {2, 2}) * 2;
    kept = weft::to_dlpack(x);
  }
  const DLManagedTensorVersioned& seen = *kept.get();  // the tensor is gone, the memory is not
  CHECK(seen.major == 1 && (seen.flags & 1) == 1);
  CHECK(seen.tensor.ndim == 2 && seen.tensor.shape[0] == 2 && seen.tensor.shape[1] == 2);
  CHECK(seen.tensor.dtype.code == 2 && seen.tensor.dtype.bits == 32 && seen.tensor.dtype.lanes == 1);
  CHECK(seen.tensor.device.type == 1);
  const auto* values = reinterpret_cast<const float*>(static_cast<const char*>(seen.tensor.data) + seen.tensor.byte_offset);
  CHECK(values[0] == 2 && values[3] == 8);
  weft::lent other = std::move(kept);
  CHECK(kept.get() == nullptr && other.get() == &seen);
  const weft::tensor back = weft::from_dlpack(ctx, std::move(other));
  CHECK(other.get() == nullptr && holds<float>(back, {2, 4, 6, 8}));
  CHECK(refused([&] { (void)weft::to_dlpack(weft::tensor()); }) == weft::code::invalid_argument);
}

void adopting(const weft::context& ctx) {
  {
    const weft::tensor x = weft::from_dlpack(ctx, weft::lent(&(new Foreign)->managed));
    CHECK((x.type() == weft::tensor_type{weft::f32, {2, 3}}));
    CHECK(weft::sum(x).item() == 21 && ended == 0);
  }
  ctx.sync();
  CHECK(ended == 1);
  {
    auto* const given = new Foreign;
    given->managed.tensor.dtype.lanes = 4;
    CHECK(!weft::try_from_dlpack(ctx, weft::lent(&given->managed)));
    CHECK(ended == 2);  // what was refused ends here, once
  }
  { const weft::lent never_used(&(new Foreign)->managed); }
  CHECK(ended == 3);
}

void reading(const weft::context& ctx, const std::string& folder) {
  const std::string path = folder + "/state.weft";
  weft::tree all;
  all.add_dict("layer").add("w", weft::tensor(ctx, {1.f, 2.f, 3.f}, {3, 1})).add("b", weft::tensor(ctx, {0.5}));
  all.add("epoch", 7);
  all.save(ctx, path, {.step = 42, .metadata = {{"data", "moons"}}});
  const weft::checkpoint_reader reader = weft::checkpoint_reader::open(ctx, path);
  CHECK(reader.size() == 2);
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < reader.size(); ++i) paths.push_back(reader.entry(i).path);
  CHECK(paths == std::vector<std::string>{"layer.w", "layer.b"});
  const weft::checkpoint_entry w = reader.find("layer.w");
  CHECK((w.type == weft::tensor_type{weft::f32, {3, 1}}) && w.stored == weft::f32 && w.size >= 12);
  CHECK(holds<float>(reader.load("layer.w"), {1, 2, 3}) && holds<double>(reader.load("layer.b"), {0.5}));
  CHECK(reader.info().step == 42 && reader.info().tensors == 2 && reader.info().tensor_bytes == 20);
  CHECK(reader.info().file_bytes == std::filesystem::file_size(path) && reader.info().producer.starts_with("weft "));
  CHECK(reader.metadata()["data"].as<std::string>() == "moons");
  CHECK(reader.all()["epoch"].as<std::int64_t>() == 7 && holds<double>(reader.all()["layer.b"].as<weft::tensor>(), {0.5}));
  CHECK(reader.structure()["epoch"].as<std::int64_t>() == 7);
  CHECK(refused([&] { (void)reader.structure()["layer.w"].as<weft::tensor>(); }) == weft::code::failed_precondition);
  CHECK(refused([&] { (void)reader.load("layer.x"); }) == weft::code::not_found);
  CHECK(refused([&] { (void)reader.find("layer"); }) == weft::code::not_found);
  CHECK(refused([&] { (void)reader.entry(2); }) == weft::code::out_of_range);
  CHECK(refused([&] { (void)weft::checkpoint_reader::open(ctx, folder + "/none"); }) == weft::code::not_found);
  std::ofstream(folder + "/text") << "no checkpoint";
  CHECK(!weft::checkpoint_reader::try_open(ctx, folder + "/text"));
}

}  // namespace

int main() {
  const weft::context ctx({.platform = "cpu", .threads = 2, .cache_mode = "off"});
  lending(ctx);
  adopting(ctx);
  reading(ctx, std::filesystem::current_path().string());
  return report();
}
