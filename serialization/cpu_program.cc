// Compiled programs as one Cap'n Proto message.
#include "serialization/cpu_program.h"

#include <algorithm>

#include "serialization/limits.h"
#include "serialization/message.h"
#include "serialization/schema/cpu_program.capnp.h"

namespace weft::cpu {
namespace {

constexpr std::string_view kWhat = "compiled program";

template <typename List, typename From>
void SetNumbers(List list, const From& from) {
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, from[i]);
}
template <typename List>
void SetStrings(List list, const std::vector<std::string>& from) {
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, ToData(from[i]));
}
template <typename List>
void SetSpecs(List list, const std::vector<ValueSpec>& from) {
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setDtype(static_cast<uint32_t>(from[i].dtype));
    SetNumbers(list[i].initDims(static_cast<unsigned>(from[i].dims.size())), from[i].dims);
  }
}

template <typename T, typename List>
void GetNumbers(List list, T& to) {
  to.reserve(list.size());
  for (const auto value : list) to.push_back(static_cast<typename T::value_type>(value));
}
template <typename List>
void GetStrings(List list, std::vector<std::string>& to) {
  to.reserve(list.size());
  for (const auto text : list) to.emplace_back(FromData(text));
}
template <typename List>
void GetSpecs(List list, std::vector<ValueSpec>& to) {
  for (const auto from : list) {
    ValueSpec spec;
    spec.dtype = static_cast<DType>(from.getDtype());
    GetNumbers(from.getDims(), spec.dims);
    to.push_back(std::move(spec));
  }
}

// Names of operations, each once: neither where nor on how many lines something was recorded.
struct OriginOps {
  std::vector<std::string> names;
  std::vector<uint32_t> of;  // by position in Program::origins

  explicit OriginOps(const Program& p) {
    for (const Origin& origin : p.origins) {
      const auto at = std::find(names.begin(), names.end(), origin.op);
      of.push_back(static_cast<uint32_t>(at - names.begin()));
      if (at == names.end()) names.push_back(origin.op);
    }
  }
  std::vector<uint32_t> Of(const Entry& e) const {
    std::vector<uint32_t> ops;
    for (const uint32_t origin : e.origins) {
      const uint32_t op = origin < of.size() ? of[origin] : static_cast<uint32_t>(names.size());
      if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
    }
    return ops;
  }
};

void SetEntry(schema::CpuEntry::Builder to, const Entry& e, const OriginOps& ops) {
  to.setType(static_cast<uint8_t>(e.type));
  to.setCode(e.code);
  auto buffers = to.initBuffers(static_cast<unsigned>(e.buffers.size()));
  for (unsigned i = 0; i < buffers.size(); ++i) {
    buffers[i].setPlace(static_cast<uint8_t>(e.buffers[i].place));
    buffers[i].setIndex(e.buffers[i].index);
    buffers[i].setOffset(e.buffers[i].offset);
  }
  SetNumbers(to.initParams(static_cast<unsigned>(e.params.size())), e.params);
  to.setTasks(e.tasks);
  to.setCost(e.cost);
  to.setScratchBytes(e.scratch_bytes);
  to.setWrites(e.writes);
  to.setReads(e.reads);
  to.setFlops(e.flops);
  to.setEpilogue(e.epilogue);
  to.setEpilogueBuffers(e.epilogue_buffers);
  if (!e.epilogue_params.empty())
    SetNumbers(to.initEpilogueParams(static_cast<unsigned>(e.epilogue_params.size())), e.epilogue_params);
  to.setEpilogueConsumes(e.epilogue_consumes);
  const std::vector<uint32_t> origins = ops.Of(e);
  SetNumbers(to.initOrigins(static_cast<unsigned>(origins.size())), origins);
}

Entry GetEntry(schema::CpuEntry::Reader from) {
  Entry e;
  e.type = static_cast<Entry::Type>(from.getType());
  e.code = from.getCode();
  const auto buffers = from.getBuffers();
  e.buffers.reserve(buffers.size());
  for (const auto b : buffers) {
    e.buffers.push_back({static_cast<BufferRef::Place>(b.getPlace()), b.getIndex(), b.getOffset()});
  }
  GetNumbers(from.getParams(), e.params);
  e.tasks = from.getTasks();
  e.cost = from.getCost();
  e.scratch_bytes = from.getScratchBytes();
  e.writes = from.getWrites();
  e.reads = from.getReads();
  e.flops = from.getFlops();
  e.epilogue = from.getEpilogue();
  e.epilogue_buffers = from.getEpilogueBuffers();
  GetNumbers(from.getEpilogueParams(), e.epilogue_params);
  e.epilogue_consumes = from.getEpilogueConsumes();
  GetNumbers(from.getOrigins(), e.origins);
  return e;
}

// About what the message will take; BuildMessage starts again with twice as much if it was too little.
size_t Guess(const Program& p) {
  size_t bytes = 4096 + p.constants.size() + p.micro_kernels.size() + 64 * (p.arguments.size() + p.results.size());
  for (const EntryList& list : p.lists) {
    for (const Entry& e : list) {
      bytes += 128 + 16 * e.buffers.size() + 8 * (e.params.size() + e.epilogue_params.size()) + 4 * e.origins.size();
    }
  }
  for (const std::string& key : p.loops) bytes += 16 + key.size();
  for (const Origin& origin : p.origins) bytes += 16 + origin.op.size();
  for (const auto& object : p.objects) {
    bytes += 64 + object->bytes.size();
    for (size_t i = 0; i < object->keys.size(); ++i) bytes += 32 + object->keys[i].size() + object->symbols[i].size();
  }
  return bytes;
}

void SetProgram(schema::CpuProgram::Builder to, const Program& p) {
  const auto size = [](const auto& list) { return static_cast<unsigned>(list.size()); };
  to.setFingerprint(ToData(p.fingerprint));
  to.setIsa(ToData(p.isa));
  SetSpecs(to.initArguments(size(p.arguments)), p.arguments);
  SetSpecs(to.initResults(size(p.results)), p.results);
  SetNumbers(to.initDonor(size(p.donor)), p.donor);
  to.setWords(p.words);
  SetStrings(to.initLoops(size(p.loops)), p.loops);
  SetStrings(to.initHostKernels(size(p.host_kernels)), p.host_kernels);
  const OriginOps ops(p);
  auto lists = to.initLists(size(p.lists));
  for (unsigned l = 0; l < lists.size(); ++l) {
    auto entries = lists[l].initEntries(size(p.lists[l]));
    for (unsigned e = 0; e < entries.size(); ++e) SetEntry(entries[e], p.lists[l][e], ops);
  }
  auto controls = to.initControls(size(p.controls));
  for (unsigned c = 0; c < controls.size(); ++c) {
    SetNumbers(controls[c].initLists(size(p.controls[c].lists)), p.controls[c].lists);
    controls[c].setTrips(p.controls[c].trips);
  }
  SetStrings(to.initOriginOps(size(ops.names)), ops.names);
  to.setArenaBytes(p.arena_bytes);
  SetNumbers(to.initCarried(size(p.carried)), p.carried);
  to.setConstants(ToData(p.constants));
  auto objects = to.initObjects(size(p.objects));
  for (unsigned o = 0; o < objects.size(); ++o) {
    objects[o].setBytes(ToData(p.objects[o]->bytes));
    SetStrings(objects[o].initKeys(size(p.objects[o]->keys)), p.objects[o]->keys);
    SetStrings(objects[o].initSymbols(size(p.objects[o]->symbols)), p.objects[o]->symbols);
  }
  to.setMicroKernels(ToData(p.micro_kernels));
}

void GetProgram(schema::CpuProgram::Reader from, Program& p) {
  p.fingerprint = FromData(from.getFingerprint());
  p.isa = FromData(from.getIsa());
  GetSpecs(from.getArguments(), p.arguments);
  GetSpecs(from.getResults(), p.results);
  GetNumbers(from.getDonor(), p.donor);
  p.words = from.getWords();
  GetStrings(from.getLoops(), p.loops);
  GetStrings(from.getHostKernels(), p.host_kernels);
  p.lists.clear();
  for (const auto list : from.getLists()) {
    EntryList& entries = p.lists.emplace_back();
    for (const auto entry : list.getEntries()) entries.push_back(GetEntry(entry));
  }
  for (const auto control : from.getControls()) {
    Control& to = p.controls.emplace_back();
    GetNumbers(control.getLists(), to.lists);
    to.trips = control.getTrips();
  }
  for (const auto op : from.getOriginOps()) p.origins.push_back({std::string(FromData(op)), ""});
  p.arena_bytes = from.getArenaBytes();
  GetNumbers(from.getCarried(), p.carried);
  p.constants = FromData(from.getConstants());
  for (const auto object : from.getObjects()) {
    auto to = std::make_shared<CodeObject>();
    to->bytes = FromData(object.getBytes());
    GetStrings(object.getKeys(), to->keys);
    GetStrings(object.getSymbols(), to->symbols);
    p.objects.push_back(std::move(to));
  }
  p.micro_kernels = FromData(from.getMicroKernels());
}

}  // namespace

absl::StatusOr<std::string> EncodeProgram(const Program& program) {
  std::vector<std::byte> message;
  WEFT_RETURN_IF_ERROR(BuildMessage<schema::CpuProgram>(
      kWhat, Guess(program), &message, [&](schema::CpuProgram::Builder root) { SetProgram(root, program); },
      kMaxCacheObjectBytes));
  return std::string(reinterpret_cast<const char*>(message.data()), message.size());
}

absl::StatusOr<Program> DecodeProgram(std::string_view bytes) {
  // A section of an entry lies anywhere in memory; messages are words.
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  const std::vector<std::byte> message(begin, begin + bytes.size());
  Program program;
  WEFT_RETURN_IF_ERROR(ReadMessage<schema::CpuProgram>(kWhat, message, [&](schema::CpuProgram::Reader root) {
    GetProgram(root, program);
    return absl::OkStatus();
  }));
  return program;
}

}  // namespace weft::cpu
