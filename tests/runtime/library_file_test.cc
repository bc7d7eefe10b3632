// Libraries as files: what the loader would map is looked at first.
#include "src/runtime/library_file.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "tests/support/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 4096;

// A header, two segments' headers, and what they tell of.
struct Image {
  Elf64_Ehdr head = {};
  Elf64_Phdr segments[2] = {};
  char rest[kBytes - sizeof(Elf64_Ehdr) - 2 * sizeof(Elf64_Phdr)] = {};

  Image() {
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_type = ET_DYN;
    head.e_machine = EM_X86_64;
    head.e_phoff = offsetof(Image, segments);
    head.e_phentsize = sizeof(Elf64_Phdr);
    head.e_phnum = 2;
    segments[0] = {.p_type = PT_LOAD, .p_filesz = 1000};
    segments[1] = {.p_type = PT_LOAD, .p_offset = 1000, .p_filesz = 3000};
  }
};
static_assert(sizeof(Image) == kBytes);

class LibraryFile : public ::testing::Test {
 protected:
  absl::Status Open(const Image& image, size_t size = kBytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(reinterpret_cast<const char*>(&image), static_cast<std::streamsize>(size));
    FileInfo info;
    return OpenLibrary(PosixFileSystem(), path_, "plugin", &info).status();
  }
  std::string Said(const std::function<void(Image&)>& change) {
    Image image;
    change(image);
    const std::string text(Open(image).message()), start = "plugin '" + path_ + "' cannot be loaded: ";
    EXPECT_TRUE(text.starts_with(start)) << text;
    return text.substr(std::min(text.size(), start.size()));
  }
  testing::TempDir dir_;
  const std::string path_ = dir_ / "library.so";
};

TEST_F(LibraryFile, IsOpenedWithItsSegmentsWhole) {
  EXPECT_EQ(Open({}), absl::OkStatus());
  EXPECT_EQ(Open({}, 4000), absl::OkStatus()) << "nothing is mapped behind the last segment";
}

TEST_F(LibraryFile, IsRefusedWhereverItIsCutOff) {
  for (size_t size = 0; size < 4000; size += size < 300 ? 1 : 37) {
    const absl::Status status = Open({}, size);
    EXPECT_EQ(status.code(), size < EI_NIDENT ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss) << size << ": " << status;
  }
  EXPECT_THAT(std::string(Open({}, 3999).message()), HasSubstr("it is cut off: it has 3999 bytes, and its segments end at byte 4000"));
  EXPECT_THAT(std::string(Open({}, 100).message()), HasSubstr("it is cut off: it has 100 bytes"));
}

TEST_F(LibraryFile, IsRefusedByTheNameOfItsMachine) {
  EXPECT_EQ(Said([](Image& i) { i.head.e_machine = EM_AARCH64; }), "it is for 64-bit ARM (aarch64), and this process is x86-64");
  EXPECT_EQ(Said([](Image& i) { i.head.e_machine = EM_386; }), "it is for 32-bit x86, and this process is x86-64");
  EXPECT_EQ(Said([](Image& i) { i.head.e_machine = 4711; }), "it is for machine number 4711 of ELF, and this process is x86-64");
  EXPECT_EQ(Said([](Image& i) { i.head.e_ident[EI_DATA] = ELFDATA2MSB; }), "it is for a big-endian machine, and this process is x86-64");
  EXPECT_EQ(Said([](Image& i) { i.head.e_ident[EI_CLASS] = ELFCLASS32; }), "it is for a 32-bit machine, and this process is x86-64");
}

TEST_F(LibraryFile, IsRefusedWhereItIsNone) {
  EXPECT_EQ(Said([](Image& i) { i.head.e_ident[0] = 'E'; }), "its 4096 bytes are no shared library (ELF)");
  EXPECT_EQ(Said([](Image& i) { i.head.e_type = ET_REL; }), "it is an ELF file, but no shared library");
  EXPECT_EQ(Said([](Image& i) { i.head.e_phentsize = 8; }), "its ELF header tells of 2 segments in entries of 8 bytes");
  EXPECT_THAT(Said([](Image& i) { i.head.e_phnum = 65535; }), HasSubstr("65535 segments"));
  EXPECT_THAT(Said([](Image& i) { i.head.e_phoff = UINT64_MAX - 8; }), HasSubstr("2 segments"));
  EXPECT_THAT(Said([](Image& i) { i.head.e_phoff = uint64_t{1} << 61; }), HasSubstr("it is cut off"));
  EXPECT_THAT(Said([](Image& i) { i.segments[1].p_filesz = UINT64_MAX; }), HasSubstr("it is cut off")) << "no wrapped sum";
}

TEST_F(LibraryFile, IsARegularFile) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  FileInfo info;
  EXPECT_EQ(OpenLibrary(PosixFileSystem(), path_, "plugin", &info).status(), absl::InvalidArgumentError("'" + path_ + "' is a FIFO, not a regular file"));
  EXPECT_EQ(OpenLibrary(PosixFileSystem(), "/dev/zero", "plugin", &info).status().message(), "'/dev/zero' is a device, not a regular file");
  EXPECT_EQ(OpenLibrary(PosixFileSystem(), "/tmp/", "plugin", &info).status().message(), "'/tmp/' is a directory, not a regular file");
  EXPECT_TRUE(absl::IsNotFound(OpenLibrary(PosixFileSystem(), dir_ / "none", "plugin", &info).status()));
}

}  // namespace
}  // namespace weft
