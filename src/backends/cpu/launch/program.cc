// Bytes of a program and back.
#include "src/backends/cpu/launch/program.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/loop/block_loop.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr std::string_view kMagic = "WEFTCPU\x02";

uint64_t Checksum(std::string_view bytes) {
  // FNV-1a over 8-byte pieces: enough against damage; the cache's own checksum stands before it.
  uint64_t h = 0xCBF29CE484222325;
  while (bytes.size() >= 8) {
    uint64_t piece;
    std::memcpy(&piece, bytes.data(), 8);
    h = (h ^ piece) * 0x100000001B3;
    h ^= h >> 29;
    bytes.remove_prefix(8);
  }
  for (char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return h;
}

class Writer {
 public:
  void Int(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Text(std::string_view text) {
    Int(static_cast<int64_t>(text.size()));
    bytes_.append(text);
  }
  template <typename T, typename Fn>
  void List(const T& list, Fn fn) {
    Int(static_cast<int64_t>(list.size()));
    for (const auto& item : list) fn(item);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  int64_t Int() {
    int64_t value = 0;
    if (bytes_.size() < sizeof(value)) {
      ok_ = false;
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  std::string_view Text() {
    const int64_t size = Int();
    if (!ok_ || size < 0 || static_cast<uint64_t>(size) > bytes_.size()) {
      ok_ = false;
      return {};
    }
    std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return text;
  }
  template <typename T, typename Fn>
  void List(T& list, Fn fn) {
    const int64_t size = Int();
    // Every item takes at least 8 bytes: a damaged length cannot make us allocate more than the input is long.
    if (!ok_ || size < 0 || static_cast<uint64_t>(size) > bytes_.size() / 8 + 1) {
      ok_ = false;
      return;
    }
    for (int64_t i = 0; ok_ && i < size; ++i) list.push_back(fn());
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void WriteSpec(Writer& w, const ValueSpec& spec) {
  w.Int(static_cast<int64_t>(spec.dtype));
  w.List(spec.dims, [&](int64_t d) { w.Int(d); });
}
ValueSpec ReadSpec(Reader& r) {
  ValueSpec spec;
  spec.dtype = static_cast<DType>(r.Int());
  r.List(spec.dims, [&] { return r.Int(); });
  return spec;
}

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("compiled program is damaged: ", what));
}

int64_t BytesOfSpec(const ValueSpec& spec) { return CountOf(spec.dims) * BytesOf(spec.dtype); }

}  // namespace

int64_t CostOf(double picoseconds) {
  return picoseconds < static_cast<double>(kMostCost) ? static_cast<int64_t>(picoseconds) : kMostCost;
}

int64_t Program::TotalCost() const {
  double cost = 0;
  for (const Entry& e : entries) cost += static_cast<double>(e.cost);
  return CostOf(cost);
}

std::string SerializeProgram(const Program& p) {
  Writer w;
  w.Text(p.fingerprint);
  w.Text(p.isa);
  w.List(p.arguments, [&](const ValueSpec& s) { WriteSpec(w, s); });
  w.List(p.results, [&](const ValueSpec& s) { WriteSpec(w, s); });
  w.List(p.donor, [&](int32_t d) { w.Int(d); });
  w.Int(p.words);
  w.List(p.loops, [&](const std::string& s) { w.Text(s); });
  w.List(p.host_kernels, [&](const std::string& s) { w.Text(s); });
  w.List(p.entries, [&](const Entry& e) {
    w.Int(static_cast<int64_t>(e.type));
    w.Int(e.code);
    w.List(e.buffers, [&](const BufferRef& b) {
      w.Int(static_cast<int64_t>(b.place));
      w.Int(b.index);
      w.Int(b.offset);
    });
    w.List(e.params, [&](int64_t v) { w.Int(v); });
    w.Int(e.tasks);
    w.Int(e.cost);
    w.Int(e.scratch_bytes);
    w.Int(e.epilogue);
    w.Int(e.epilogue_buffers);
    w.List(e.epilogue_params, [&](int64_t v) { w.Int(v); });
    w.Int(e.epilogue_consumes);
  });
  w.Int(p.arena_bytes);
  w.Text(p.constants);
  w.List(p.objects, [&](const std::shared_ptr<const CodeObject>& o) {
    w.Text(o->bytes);
    w.List(o->keys, [&](const std::string& s) { w.Text(s); });
    w.List(o->symbols, [&](const std::string& s) { w.Text(s); });
  });
  w.Text(p.micro_kernels);
  const std::string body = w.Take();
  Writer framed;
  framed.Int(static_cast<int64_t>(body.size()));
  framed.Int(static_cast<int64_t>(Checksum(body)));
  return absl::StrCat(kMagic, framed.Take(), body);
}

absl::StatusOr<Program> ParseProgram(std::string_view bytes) {
  if (bytes.size() < kMagic.size() + 16) return Damaged("it ends within its header");
  if (bytes.substr(0, kMagic.size()) != kMagic) return Damaged("it does not begin as one");
  Reader head(bytes.substr(kMagic.size(), 16));
  const int64_t size = head.Int();
  const uint64_t checksum = static_cast<uint64_t>(head.Int());
  std::string_view body = bytes.substr(kMagic.size() + 16);
  if (size < 0 || static_cast<uint64_t>(size) != body.size()) {
    return Damaged(absl::StrCat("it should have ", size, " bytes and has ", body.size()));
  }
  if (Checksum(body) != checksum) return Damaged("its checksum does not match");
  Reader r(body);
  Program p;
  const auto text = [&] { return std::string(r.Text()); };
  p.fingerprint = text();
  p.isa = text();
  r.List(p.arguments, [&] { return ReadSpec(r); });
  r.List(p.results, [&] { return ReadSpec(r); });
  r.List(p.donor, [&] { return static_cast<int32_t>(r.Int()); });
  p.words = static_cast<uint32_t>(r.Int());
  r.List(p.loops, text);
  r.List(p.host_kernels, text);
  r.List(p.entries, [&] {
    Entry e;
    e.type = static_cast<Entry::Type>(r.Int());
    e.code = static_cast<uint32_t>(r.Int());
    r.List(e.buffers, [&] {
      BufferRef b;
      b.place = static_cast<BufferRef::Place>(r.Int());
      b.index = static_cast<uint32_t>(r.Int());
      b.offset = r.Int();
      return b;
    });
    r.List(e.params, [&] { return r.Int(); });
    e.tasks = r.Int();
    e.cost = r.Int();
    e.scratch_bytes = r.Int();
    e.epilogue = static_cast<int32_t>(r.Int());
    e.epilogue_buffers = static_cast<uint32_t>(r.Int());
    r.List(e.epilogue_params, [&] { return r.Int(); });
    e.epilogue_consumes = static_cast<int32_t>(r.Int());
    return e;
  });
  p.arena_bytes = r.Int();
  p.constants = text();
  r.List(p.objects, [&]() -> std::shared_ptr<const CodeObject> {
    auto object = std::make_shared<CodeObject>();
    object->bytes = text();
    r.List(object->keys, text);
    r.List(object->symbols, text);
    return object;
  });
  p.micro_kernels = text();
  if (!r.done()) return Damaged("a length inside it is wrong");
  WEFT_RETURN_IF_ERROR(CheckProgram(p));
  return p;
}

absl::Status CheckProgram(const Program& p) {
  constexpr int64_t kLimit = int64_t{1} << 46;
  for (const auto* specs : {&p.arguments, &p.results}) {
    for (const ValueSpec& spec : *specs) {
      if (!IsComputable(spec.dtype)) return Damaged("an unknown element type");
      const std::optional<int64_t> count = CheckedCount(spec.dims);
      if (!count || *count > kLimit) return Damaged("an impossible shape");
    }
  }
  if (p.donor.size() != p.results.size()) return Damaged("donations do not match the results");
  for (size_t r = 0; r < p.donor.size(); ++r) {
    const int32_t d = p.donor[r];
    if (d < -1 || d >= static_cast<int32_t>(p.arguments.size())) return Damaged("a donation of no argument");
    if (d >= 0 && BytesOfSpec(p.arguments[d]) != BytesOfSpec(p.results[r]))
      return Damaged("a donation of another size");
  }
  if (p.arena_bytes < 0 || p.arena_bytes > kLimit) return Damaged("an impossible arena");
  for (const Entry& e : p.entries) {
    if (e.type > Entry::Type::kHost) return Damaged("an unknown kind of entry");
    const size_t codes = e.type == Entry::Type::kLoop ? p.loops.size() : p.host_kernels.size();
    if (e.code >= codes) return Damaged("an entry without code");
    if (e.tasks < 0 || e.cost < 0 || e.cost > kMostCost || e.scratch_bytes < 0 || e.scratch_bytes > kLimit)
      return Damaged("an impossible entry");
    if (e.epilogue >= 0 &&
        (e.type != Entry::Type::kHost || static_cast<size_t>(e.epilogue) >= p.loops.size() ||
         e.epilogue_buffers > e.buffers.size() || e.epilogue_consumes >= static_cast<int64_t>(e.epilogue_buffers) ||
         !IsBlockLoop(e.epilogue_params))) {
      return Damaged("an impossible entry");
    }
    for (const BufferRef& b : e.buffers) {
      bool inside = b.offset >= 0;
      switch (b.place) {
        case BufferRef::Place::kArgument: inside = inside && b.index < p.arguments.size() && b.offset == 0; break;
        case BufferRef::Place::kResult: inside = inside && b.index < p.results.size() && b.offset == 0; break;
        case BufferRef::Place::kWords: inside = inside && b.offset / 4 <= p.words; break;
        case BufferRef::Place::kArena: inside = inside && b.offset <= p.arena_bytes; break;
        case BufferRef::Place::kConstant:
          inside = inside && static_cast<uint64_t>(b.offset) <= p.constants.size();
          break;
        default: inside = false;
      }
      if (!inside) return Damaged("an entry refers to memory outside the plan");
    }
  }
  for (const auto& object : p.objects) {
    if (object->keys.size() != object->symbols.size()) return Damaged("machine code without names");
  }
  return absl::OkStatus();
}

std::string ToString(const Program& p) {
  std::string text;
  const auto append_ref = [&](const BufferRef& b) {
    static constexpr std::string_view kNames[] = {" a", " w", " r", " m", " c"};
    const bool indexed = b.place == BufferRef::Place::kArgument || b.place == BufferRef::Place::kResult;
    absl::StrAppend(&text, kNames[static_cast<size_t>(b.place)], indexed ? b.index : b.offset);
  };
  for (const Entry& e : p.entries) {
    if (e.type == Entry::Type::kLoop) {
      absl::StrAppend(&text, "loop ", e.code, " tasks ", e.tasks, ":");
    } else {
      absl::StrAppend(&text, p.host_kernels[e.code], e.epilogue < 0 ? "" : absl::StrCat(" then loop ", e.epilogue),
                      ":");
    }
    for (const BufferRef& b : e.buffers) append_ref(b);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace weft::cpu
