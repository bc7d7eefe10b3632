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
  TensorRecord whole;                       // tensor a
  std::vector<std::byte> data, packed;
  std::vector<FrameKind> order = {FrameKind::kData, FrameKind::kSums, FrameKind::kPack};
  SumsRecord sums;                          // filled in where empty
  PackRecord pack;
  std::vector<IndexRecord> index;           // payloads and sums are filled in while the frames are written
  FooterRecord footer;
  FrameKind extra{};                        // an empty frame of this kind before the index
  std::function<void(Parts&)> tamper = [](Parts&) {};  // after the frames, before index and footer
};

Parts GoodParts() {
  Parts p;
  const std::vector<int64_t> dims = {5'000'000}, small = {100}, least = {4};
  for (const char* name : {"a", "b", "c", "d"}) {
    const auto& shape = *name == 'a' ? dims : *name == 'd' ? least : small;
    IndexRecord entry;
    entry.tensor.id = static_cast<uint32_t>(*name - 'a');
    entry.tensor.name = name;
    entry.tensor.dtype = entry.tensor.logical = DType::kU8;
    entry.tensor.dims.assign(shape.begin(), shape.end());
    entry.tensor.bytes = static_cast<uint64_t>(shape[0]);
    p.index.push_back(entry);
    p.tree.Add(0, name, Tree::Tensor(DType::kU8, shape)).value();
  }
  p.whole = p.index[0].tensor;
  p.data.assign(5'000'000, std::byte{1});
  p.packed.assign(356, std::byte{3});
  p.pack.members = {{p.index[1].tensor, 0}, {p.index[2].tensor, 256}};
  p.index[3].inside = "four";
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
  const std::vector<Message> trees = FramesOf(p.tree);
  p.footer.tree_offset = file.size();
  p.footer.tree_frames = static_cast<uint32_t>(trees.size());
  p.footer.tree_nodes = static_cast<uint32_t>(p.tree.size());
  for (const Message& part : trees) frame(FrameKind::kTree, part, {});
  if (p.sums.sums.empty()) {
    p.sums.sums = {Checksum64(std::span(p.data).first(4 << 20)), Checksum64(std::span(p.data).subspan(4 << 20))};
  }
  p.pack.sum = Checksum64(p.packed);
  for (const FrameKind kind : p.order) {
    if (kind == FrameKind::kData) {
      EXPECT_TRUE(EncodeData(p.whole, &meta).ok());
      p.index[0].payload = PayloadOffset(file.size(), meta.size(), p.data.size());
      p.index[0].sums = p.sums.sums;
      frame(kind, meta, p.data);
    } else if (kind == FrameKind::kSums) {
      EXPECT_TRUE(EncodeSums(p.sums, &meta).ok());
      frame(kind, meta, {});
    } else {
      EXPECT_TRUE(EncodePack(p.pack, &meta).ok());
      for (const PackRecord::Member& m : p.pack.members) {
        IndexRecord& entry = p.index[m.tensor.id];
        entry.payload = PayloadOffset(file.size(), meta.size(), p.packed.size());
        entry.pack_bytes = static_cast<uint32_t>(p.packed.size());
        entry.inner = m.offset;
        entry.pack_sum = p.pack.sum;
      }
      frame(kind, meta, p.packed);
    }
  }
  if (p.extra != FrameKind{}) frame(p.extra, {}, {});
  p.footer.tensors = p.index.size();
  p.footer.payloads = 2;
  for (const IndexRecord& t : p.index) p.footer.raw_bytes += t.tensor.bytes;
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
  const auto with = [](std::function<void(std::vector<IndexRecord>&)> tamper) {
    Parts p = GoodParts();
    p.tamper = [&](Parts& parts) { tamper(parts.index); };
    return Refusal(p);
  };
  using I = std::vector<IndexRecord>&;
  EXPECT_THAT(with([](I i) { i[0].payload += 65536; }), HasSubstr("lies outside the data"));
  EXPECT_THAT(with([](I i) { i[0].payload += 4096; }), HasSubstr("has a payload at byte"));
  EXPECT_THAT(with([](I i) { i[1].payload += 64; }), HasSubstr("has a payload at byte"));
  EXPECT_THAT(with([](I i) { i[0].payload = 0; }), HasSubstr("has 0 bytes inside, of 5000000"));
  EXPECT_THAT(with([](I i) { i[0].payload = uint64_t{1} << 62; }), HasSubstr("lies outside the data"));
  EXPECT_THAT(with([](I i) { i[0].payload = 0xFFFFFFFFFFFF0000u; }), HasSubstr("lies outside the data"));
  EXPECT_THAT(with([](I i) { i[0].sums.pop_back(); }), HasSubstr("has 1 checksums for 5000000 bytes"));
  EXPECT_THAT(with([](I i) { i[0].sums[1] ^= 1; }), HasSubstr("the checksums of tensor 0 are not what the index says"));
  EXPECT_THAT(with([](I i) { i[0].inside = "x"; }), HasSubstr("has 1 bytes inside"));
  EXPECT_THAT(with([](I i) { i[0].inner = 64; }), HasSubstr("has a place in a pack that it is not in"));
  EXPECT_THAT(with([](I i) { i[0].inner = 64, i[0].sums.clear(); }), HasSubstr("stands in parts, which the header does not say"));
  EXPECT_THAT(with([](I i) { i[0].inner = 65, i[0].sums.clear(); }), HasSubstr("has no frame of parts"));
  EXPECT_THAT(with([](I i) { i[0].inner = 0xFFFFFFC0, i[0].sums.clear(); }), HasSubstr("has no frame of parts"));
  EXPECT_THAT(with([](I i) { i[2].inner = 50; }), HasSubstr("overlaps another in the same pack"));
  EXPECT_THAT(with([](I i) { i[2].inner = 300; }), HasSubstr("outside its pack"));
  EXPECT_THAT(with([](I i) { i[2].inner = 200; }), HasSubstr("a pack does not hold what the index says"));
  EXPECT_THAT(with([](I i) { i[2].pack_bytes = 357; }), HasSubstr("contradicts another in the same pack"));
  EXPECT_THAT(with([](I i) { i[2].pack_bytes = 0xFFFFFFFF; }), HasSubstr("outside its pack"));
  EXPECT_THAT(with([](I i) { i[2].pack_sum ^= 1; }), HasSubstr("contradicts another in the same pack"));
  EXPECT_THAT(with([](I i) { i[1].sums = {1}; }), HasSubstr("has 1 checksums for 100 bytes"));
  EXPECT_THAT(with([](I i) { i[3].inside = "fo"; }), HasSubstr("has 2 bytes inside, of 4"));
  EXPECT_THAT(with([](I i) { i[3] = {i[3].tensor, i[1].payload, 356, 128, i[1].pack_sum, {}, {}}; }),
              HasSubstr("tensor 'd' does not stand where the index says"));
  EXPECT_THAT(with([](I i) { i[1].tensor.id = 0; }), HasSubstr("tensor id 0 is used twice"));
  EXPECT_THAT(with([](I i) { i[1].tensor.id = 77; }), HasSubstr("tensor id 77 is used twice or larger"));
  EXPECT_THAT(with([](I i) { i[1].tensor.id = 0xFFFFFFFF; }), HasSubstr("is larger than allowed"));
  EXPECT_THAT(with([](I i) { std::swap(i[1], i[2]); }), HasSubstr("the index is not sorted at 'b'"));
  EXPECT_THAT(with([](I i) { i[1].tensor.name = "a"; }), HasSubstr("the index is not sorted at 'a'"));
  EXPECT_THAT(with([](I i) { i[3].tensor.name = "e"; }), HasSubstr("is called 'e', its place in the tree is 'd'"));
  EXPECT_THAT(with([](I i) { i[3].tensor.name = std::string(5000, 'z'); }), HasSubstr("has 5000 bytes; at most 4096"));
  EXPECT_THAT(with([](I i) { i[1].tensor.dims = {10, 10}; }), HasSubstr("a pack does not hold what the index says"));
  EXPECT_THAT(with([](I i) { i[0].tensor.dims = {5'000, 1'000}; }), HasSubstr("is not what the index says"));
  EXPECT_THAT(with([](I i) { i[3].tensor.dims = {5}; }), HasSubstr("has 4 bytes inside, of 5"));
  EXPECT_THAT(with([](I i) { i[0].tensor.dims = {int64_t{1} << 62, 64}; }), HasSubstr("more bytes than a tensor can have"));
  EXPECT_THAT(with([](I i) { i[1].tensor.dims.resize(33, 1); }), HasSubstr("has 33 dimensions"));
  EXPECT_THAT(with([](I i) { i[1].tensor.dtype = i[1].tensor.logical = DType::kI8; }), HasSubstr("does not hold what the index says"));
  EXPECT_THAT(with([](I i) { i[1].tensor.logical = DType::kF32; }),
              HasSubstr("has an element type that this library does not read (number 5, seen as 17)"));
  EXPECT_THAT(with([](I i) { i[1].tensor.dtype = DType::kInvalid; }), HasSubstr("has an element type that this library"));
  EXPECT_THAT(with([](I i) { i.pop_back(); }), HasSubstr("the index has 3 tensors"));
  EXPECT_THAT(with([](I i) { i.clear(); }), HasSubstr("the index has 0 tensors"));
}

TEST(CheckpointForged, FootersThatLieAreRefused) {
  const auto with = [](std::function<void(FooterRecord&)> tamper) {
    Parts p = GoodParts();
    p.tamper = [&](Parts& parts) { tamper(parts.footer); };
    return Refusal(p);
  };
  EXPECT_THAT(with([](FooterRecord& f) { f.tensors = 16 << 20; }), HasSubstr("more tensors are announced than the file can hold"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tensors = ~uint64_t{0}; }), HasSubstr("more than allowed"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tensors = 2; }), HasSubstr("the index has 4 tensors, the footer says 2"));
  EXPECT_THAT(with([](FooterRecord& f) { f.payloads = 9; }), HasSubstr("the footer says 9"));
  EXPECT_THAT(with([](FooterRecord& f) { f.raw_bytes = 1; }), HasSubstr("of 5000204 bytes, the footer says 1"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_offset = 0; }), HasSubstr("a frame was expected here"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_offset = 64; }), HasSubstr("a frame of the tree is missing"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_offset = ~uint64_t{0}; }), HasSubstr("no frame can start here"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_frames = 1'000'000; }), HasSubstr("a frame of the tree is missing"));
  EXPECT_THAT(with([](FooterRecord& f) { f.tree_nodes = 6; }), HasSubstr("the tree has 5 nodes, the footer says 6"));
  EXPECT_THAT(with([](FooterRecord& f) { f.pages.push_back({"a", 64, 128, 0, 1}); }), HasSubstr("an index page does not stand where"));
}

TEST(CheckpointForged, FramesThatContradictEachOtherAreRefused) {
  Parts p = GoodParts();
  p.order = {FrameKind::kSums, FrameKind::kData, FrameKind::kPack};
  EXPECT_THAT(Refusal(p), HasSubstr("checksums do not follow the tensor that they are of"));
  p = GoodParts();
  p.order = {FrameKind::kData, FrameKind::kPack, FrameKind::kSums};
  EXPECT_THAT(Refusal(p), HasSubstr("checksums do not follow the tensor that they are of"));
  p = GoodParts();
  p.sums.tensor = 2;
  EXPECT_THAT(Refusal(p), HasSubstr("the checksums of tensor 0 are not what the index says"));
  p = GoodParts();
  p.whole.dims = {2'500'000, 2};
  EXPECT_THAT(Refusal(p), HasSubstr("tensor 0 is not what the index says"));
  p = GoodParts();
  p.whole.dims = {4'999'999};
  EXPECT_THAT(Refusal(p), HasSubstr("stands in a payload of 5000000 bytes"));
  p = GoodParts();
  p.pack.members[1].offset = 50;
  EXPECT_THAT(Refusal(p), HasSubstr("overlaps another in the same pack"));
  p = GoodParts();
  p.extra = FrameKind::kHeader;
  EXPECT_THAT(Refusal(p), HasSubstr("a second header"));
  p = GoodParts();
  p.extra = static_cast<FrameKind>(42);
  EXPECT_THAT(Refusal(p), HasSubstr("a frame of unknown kind 42"));
  p = GoodParts();
  p.extra = FrameKind::kPack;
  EXPECT_THAT(Refusal(p), HasSubstr("is not a valid message: its length is 0 bytes"));
  p = GoodParts();
  p.header.uuid[0] = std::byte{1};
  EXPECT_THAT(Refusal(p), HasSubstr("prologue and header disagree"));
  p = GoodParts();
  p.tree.Add(0, "e", Tree::Tensor(DType::kU8, {})).value();
  EXPECT_THAT(Refusal(p), HasSubstr("the tree has 5 tensors, the index 4"));
}

TEST(CheckpointForged, StreamsThatLieAreRefused) {
  const auto refusal = [](const Parts& p) {
    OneFile file;
    file.bytes = Assemble(p);
    uint64_t handed_out = 0;
    StreamHandler handler;
    handler.piece = [&](uint32_t id, uint64_t, std::span<const std::byte> data) {
      if (id == 0) handed_out += data.size();
      return absl::OkStatus();
    };
    const absl::Status status = ReadCheckpointStream(3, "file", handler, &file).status();
    return absl::StrCat(status.message(), handed_out == 0 ? "; nothing of a was handed out" : "");
  };
  Parts p = GoodParts();
  p.order = {FrameKind::kData, FrameKind::kPack, FrameKind::kSums};
  EXPECT_THAT(refusal(p), HasSubstr("checksums do not follow the tensor that they are of; nothing of a was handed out"));
  p = GoodParts();
  p.sums.sums = {1, 2};
  EXPECT_THAT(refusal(p), HasSubstr("the checksum of tensor 0 does not match; nothing of a was handed out"));
  p = GoodParts();
  p.sums.sums = {1};
  EXPECT_THAT(refusal(p), HasSubstr("these are not the checksums of tensor 0; nothing of a was handed out"));
  p = GoodParts();
  p.order = {FrameKind::kData, FrameKind::kSums};
  EXPECT_THAT(refusal(p), HasSubstr("the index entry of tensor 'b' has 0 bytes inside, of 100"));
  p = GoodParts();
  p.tamper = [](Parts& parts) { parts.index[2].inner = 128; };
  EXPECT_THAT(refusal(p), HasSubstr("the index entry of tensor 'c' is not what came"));
  p = GoodParts();
  p.tamper = [](Parts& parts) { parts.footer.payloads = 7; };
  EXPECT_THAT(refusal(p), HasSubstr("the stream does not hold what its footer says"));
}

}  // namespace
}  // namespace weft::testing
