// Files that somebody built on purpose: every checksum is right, something else is not. Each is refused with its reason.
#include <functional>

#include "gmock/gmock.h"
#include "serialization/limits.h"
#include "tests/serialization/checkpoint_support.h"
#include "tests/support/one_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// A file as its records, to be tampered with before or after they are put together.
struct Parts {
  HeaderRecord header;
  Tree tree;
  std::vector<TensorRecord> tensors;
  std::vector<ChunkFrameRecord> chunks;   // hash and bytes are filled in from the payload
  std::vector<std::vector<std::byte>> payloads;
  std::vector<IndexRecord> index;         // filled in while the frames are written
  FooterRecord footer;
  FrameKind extra{};                      // an empty frame of this kind before the index
  std::function<void(Parts&)> tamper = [](Parts&) {};  // after the frames, before index and footer
};

Parts GoodParts() {
  Parts p;
  const std::vector<int64_t> dims = {70'000}, small = {100};
  p.tree.Add(0, "a", Tree::Tensor(DType::kU8, dims)).value();
  p.tree.Add(0, "b", Tree::Tensor(DType::kU8, small)).value();
  p.tree.Add(0, "c", Tree::Tensor(DType::kU8, small)).value();
  for (uint32_t i = 0; i < 3; ++i) {
    TensorRecord t;
    t.id = i;
    t.name = std::string(1, static_cast<char>('a' + i));
    t.dtype = t.logical = DType::kU8;
    t.dims = {i == 0 ? 70'000 : 100};
    t.bytes = i == 0 ? 70'000 : 100;
    p.tensors.push_back(t);
  }
  p.payloads = {std::vector<std::byte>(40'000, std::byte{1}), std::vector<std::byte>(30'000, std::byte{2}),
                std::vector<std::byte>(356, std::byte{3})};
  p.chunks = {{.tensor = 0}, {.tensor = 0, .ordinal = 1, .raw_offset = 40'000}, {.members = {{1, 0, 100}, {2, 256, 100}}}};
  return p;
}

std::string Assemble(Parts p) {
  std::string file(kPrologueBytes, '\0');
  RunningChecksum root;
  const auto frame = [&](FrameKind kind, const Message& meta, std::span<const std::byte> payload) {
    const uint64_t offset = file.size();
    file.resize(FrameEnd(offset, meta.size(), payload.size()), '\0');
    auto* out = reinterpret_cast<std::byte*>(file.data());
    EncodePrefix(kind, meta, payload.size(), out + offset);
    std::copy(meta.begin(), meta.end(), out + offset + kPrefixBytes);
    std::copy(payload.begin(), payload.end(), out + PayloadOffset(offset, meta.size(), payload.size()));
    if (kind != FrameKind::kFooter) root.Add({out + offset, kPrefixBytes});
    return offset;
  };
  Message meta;
  EXPECT_TRUE(EncodeHeader(p.header, &meta).ok());
  frame(FrameKind::kHeader, meta, {});
  std::vector<Message> trees;
  std::vector<uint32_t> ids;
  EXPECT_TRUE(EncodeTree(p.tree, &trees, &ids).ok());
  p.footer.tree_offset = file.size();
  p.footer.tree_frames = static_cast<uint32_t>(trees.size());
  p.footer.tree_nodes = static_cast<uint32_t>(p.tree.size());
  for (const Message& part : trees) frame(FrameKind::kTree, part, {});
  EXPECT_TRUE(EncodeTensors(p.tensors, &meta).ok());
  frame(FrameKind::kTensors, meta, {});
  for (const TensorRecord& t : p.tensors) p.index.push_back({t, {}});
  for (size_t i = 0; i < p.chunks.size(); ++i) {
    ChunkFrameRecord& c = p.chunks[i];
    c.bytes = static_cast<uint32_t>(p.payloads[i].size());
    c.hash = Checksum64(p.payloads[i]);
    EXPECT_TRUE(EncodeChunk(c, &meta).ok());
    const uint64_t at = PayloadOffset(file.size(), meta.size(), p.payloads[i].size());
    frame(c.members.empty() ? FrameKind::kChunk : FrameKind::kPack, meta, p.payloads[i]);
    if (c.members.empty()) p.index[c.tensor].chunks.push_back({at, c.hash, c.bytes, 0});
    for (const PackMemberRecord& m : c.members) p.index[m.tensor].chunks.push_back({at, c.hash, c.bytes, m.offset});
  }
  if (p.extra != FrameKind{}) frame(p.extra, {}, {});
  p.footer.tensors = p.tensors.size();
  p.footer.chunks = p.chunks.size();
  for (const TensorRecord& t : p.tensors) p.footer.raw_bytes += t.bytes;
  p.tamper(p);
  if (!p.index.empty()) {
    PageRecord page;
    EXPECT_TRUE(EncodeIndexPage(p.index, &meta).ok());
    page.offset = frame(FrameKind::kIndexPage, meta, {});
    page.bytes = static_cast<uint32_t>(file.size() - page.offset);
    page.hash = Checksum64(std::as_bytes(std::span(file).subspan(page.offset)));
    page.count = static_cast<uint32_t>(p.index.size());
    page.first_name = p.index[0].tensor.name;
    p.footer.pages.push_back(page);
  }
  p.footer.root_hash = root.Value();
  EXPECT_TRUE(EncodeFooter(p.footer, &meta).ok());
  Trailer trailer;
  trailer.footer_offset = frame(FrameKind::kFooter, meta, {});
  trailer.footer_bytes = file.size() - trailer.footer_offset;
  trailer.footer_hash = Checksum64(std::as_bytes(std::span(file).subspan(trailer.footer_offset)));
  trailer.root_hash_low = p.footer.root_hash.low;
  trailer.file_bytes = file.size() + kTrailerBytes;
  file.resize(file.size() + kTrailerBytes);
  auto* out = reinterpret_cast<std::byte*>(file.data());
  EncodePrologue({}, out);
  EncodeTrailer(trailer, out + file.size() - kTrailerBytes);
  return file;
}

std::string Refusal(const Parts& parts) {
  OneFile file;
  file.bytes = Assemble(parts);
  return std::string(OpenAndReadAll("file", &file).message());
}

TEST(CheckpointForged, TheUntamperedFileIsGood) {
  OneFile file;
  file.bytes = Assemble(GoodParts());
  const absl::Status status = OpenAndReadAll("file", &file);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(ReadCheckpointStream(3, "file", {}, &file).ok());
}

TEST(CheckpointForged, IndexesThatLieAreRefused) {
  const auto with = [](std::function<void(Parts&)> tamper) {
    Parts p = GoodParts();
    p.tamper = std::move(tamper);
    return Refusal(p);
  };
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[1].offset = p.index[0].chunks[0].offset; }), HasSubstr("contradicts another"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[0].offset -= 256; }), HasSubstr("is not where the index says"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[0].offset += 1; }), HasSubstr("contradict each other"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[0].offset = 0; }), HasSubstr("lies outside the data"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[0].offset = uint64_t{1} << 62; }), HasSubstr("lies outside the data"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[0].bytes = 0; }), HasSubstr("contradict each other"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[0].bytes = 0xFFFFFFFF; }), HasSubstr("contradict each other"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks.pop_back(); }), HasSubstr("outside its pack"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks.clear(); }), HasSubstr("has chunks of 0 bytes for 70000"));
  EXPECT_THAT(with([](Parts& p) { p.index[0].chunks[1].hash ^= 1; }), HasSubstr("is not where the index says"));
  EXPECT_THAT(with([](Parts& p) { p.index[2].chunks[0].inner = 50; }), HasSubstr("overlaps another in the same pack"));
  EXPECT_THAT(with([](Parts& p) { p.index[2].chunks[0].inner = 300; }), HasSubstr("outside its pack"));
  EXPECT_THAT(with([](Parts& p) { p.index[2].chunks[0].inner = 200; }), HasSubstr("a pack does not hold what the index says"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.id = 0; }), HasSubstr("tensor id 0 is used twice"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.id = 77; }), HasSubstr("tensor id 77 is used twice or larger"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.id = 0xFFFFFFFF; }), HasSubstr("is larger than allowed"));
  EXPECT_THAT(with([](Parts& p) { std::swap(p.index[1], p.index[2]); }), HasSubstr("the index is not sorted at 'b'"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.name = "a"; }), HasSubstr("the index is not sorted at 'a'"));
  EXPECT_THAT(with([](Parts& p) { p.index[2].tensor.name = "d"; }), HasSubstr("is called 'd', its place in the tree is 'c'"));
  EXPECT_THAT(with([](Parts& p) { p.index[2].tensor.name = std::string(5000, 'z'); }), HasSubstr("has 5000 bytes; at most 4096"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.dims = {10, 10}; }), HasSubstr("is not what the index says"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.dims = {101}; }), HasSubstr("claims 100 bytes"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.dims = {int64_t{1} << 62, 64}; }), HasSubstr("claims 100 bytes"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.dims.resize(33, 1); }), HasSubstr("has 33 dimensions"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.dtype = p.index[1].tensor.logical = DType::kI8; }), HasSubstr("is not what the index says"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.logical = DType::kF32; }),
              HasSubstr("has an element type that this library does not read (number 5, seen as 17)"));
  EXPECT_THAT(with([](Parts& p) { p.index[1].tensor.dtype = DType::kInvalid; }), HasSubstr("has an element type that this library"));
  EXPECT_THAT(with([](Parts& p) { p.index.pop_back(); }), HasSubstr("the index has 2 tensors"));
  EXPECT_THAT(with([](Parts& p) { p.index.clear(); }), HasSubstr("the index has 0 tensors"));
}

TEST(CheckpointForged, FootersThatLieAreRefused) {
  const auto with = [](std::function<void(FooterRecord&)> tamper) {
    Parts p = GoodParts();
    p.tamper = [&](Parts& parts) { tamper(parts.footer); };
    return Refusal(p);
  };
  EXPECT_THAT(with([](FooterRecord& f) { f.tensors = 16 << 20; }), HasSubstr("more tensors are announced than the file can hold"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tensors = ~uint64_t{0}; }), HasSubstr("more than allowed"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tensors = 2; }), HasSubstr("tensor id 2 is used twice or larger"));
  EXPECT_THAT(with([](FooterRecord& f) { f.chunks = 9; }), HasSubstr("the footer says 9"));
  EXPECT_THAT(with([](FooterRecord& f) { f.raw_bytes = 1; }), HasSubstr("the footer says 3 of 1"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_offset = 0; }), HasSubstr("a frame was expected here"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_offset = 64; }), HasSubstr("a frame of the tree is missing"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_offset = ~uint64_t{0}; }), HasSubstr("no frame can start here"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_frames = 1'000'000; }), HasSubstr("a frame of the tree is missing"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_nodes = 5; }), HasSubstr("the tree has 4 nodes, the footer says 5"));
  EXPECT_THAT(with([](FooterRecord& f) { f.pages.push_back({"a", 64, 128, 0, 1}); }), HasSubstr("the checksum of an index page"));
}

TEST(CheckpointForged, FramesThatContradictEachOtherAreRefused) {
  Parts p = GoodParts();
  std::swap(p.chunks[0], p.chunks[1]);
  std::swap(p.payloads[0], p.payloads[1]);
  EXPECT_THAT(Refusal(p), HasSubstr("is not where the index says"));
  p = GoodParts();
  p.chunks[1].raw_offset = 39'999;
  EXPECT_THAT(Refusal(p), HasSubstr("a chunk of a tensor is out of order"));
  p = GoodParts();
  p.chunks[2].members[1].offset = 50;
  EXPECT_THAT(Refusal(p), HasSubstr("overlaps another in the same pack"));
  p = GoodParts();
  p.extra = FrameKind::kHeader;
  EXPECT_THAT(Refusal(p), HasSubstr("a second header"));
  p = GoodParts();
  p.extra = static_cast<FrameKind>(42);
  EXPECT_THAT(Refusal(p), HasSubstr("a frame of unknown kind 42"));
  p = GoodParts();
  p.extra = FrameKind::kTensors;
  EXPECT_THAT(Refusal(p), HasSubstr("is not a valid message: its length is 0 bytes"));
  p = GoodParts();
  p.header.uuid[0] = std::byte{1};
  EXPECT_THAT(Refusal(p), HasSubstr("prologue and header disagree"));
  p = GoodParts();
  p.tree.Add(0, "d", Tree::Tensor(DType::kU8, {})).value();
  EXPECT_THAT(Refusal(p), HasSubstr("the tree has 4 tensors, the index 3"));
}

TEST(CheckpointForged, StreamsThatLieAreRefused) {
  const auto refusal = [](const Parts& p) {
    OneFile file;
    file.bytes = Assemble(p);
    return std::string(ReadCheckpointStream(3, "file", {}, &file).status().message());
  };
  Parts p = GoodParts();
  std::swap(p.chunks[0], p.chunks[1]);
  std::swap(p.payloads[0], p.payloads[1]);
  EXPECT_THAT(refusal(p), HasSubstr("a chunk belongs to no tensor that was announced before it"));
  p = GoodParts();
  p.payloads[1].resize(30'001);
  EXPECT_THAT(refusal(p), HasSubstr("a chunk belongs to no tensor that was announced before it"));
  p = GoodParts();
  p.payloads[1].resize(29'999);
  EXPECT_THAT(refusal(p), HasSubstr("tensor 'a' is incomplete"));
  p = GoodParts();
  p.tamper = [](Parts& parts) { parts.footer.chunks = 7; };
  EXPECT_THAT(refusal(p), HasSubstr("the stream does not hold what its footer says"));
}

}  // namespace
}  // namespace weft::testing
