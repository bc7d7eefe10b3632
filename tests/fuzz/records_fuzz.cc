// Any bytes as a TFRecord file and as a tar archive. Checksums are mended before one of two runs, so that mutations reach what they guard.
#include <cstring>
#include <string>

#include "absl/crc/crc32c.h"
#include "src/data/tar.h"
#include "src/data/tfrecord.h"

namespace {

void MendRecords(std::string* bytes) {
  const auto masked = [](std::string_view of) {
    const auto crc = static_cast<uint32_t>(absl::ComputeCrc32c(of));
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
  };
  for (size_t at = 0; at + 16 <= bytes->size();) {
    uint64_t length = static_cast<uint8_t>((*bytes)[at]);  // of one byte: others would reach past the end
    if (length > bytes->size() - at - 16) length = bytes->size() - at - 16;
    std::memcpy(bytes->data() + at, &length, 8);
    const uint32_t head = masked(std::string_view(*bytes).substr(at, 8));
    std::memcpy(bytes->data() + at + 8, &head, 4);
    const uint32_t body = masked(std::string_view(*bytes).substr(at + 12, length));
    std::memcpy(bytes->data() + at + 12 + length, &body, 4);
    at += 16 + length;
  }
}

void MendTar(std::string* bytes) {
  for (size_t at = 0; at + 512 <= bytes->size(); at += 512) {
    std::memset(bytes->data() + at + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<uint8_t>((*bytes)[at + i]);
    char digits[8];
    snprintf(digits, sizeof(digits), "%06o", sum & 0777777);
    std::memcpy(bytes->data() + at + 148, digits, 7);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)weft::data::ReadExamples("file", bytes);
  (void)weft::data::ReadTar("file", bytes);
  std::string mended = bytes;
  MendRecords(&mended);
  (void)weft::data::ReadExamples("file", mended);
  MendTar(&bytes);
  (void)weft::data::ReadTar("file", bytes);
  return 0;
}
