// See thread_words.h. The table is the exported object weft_thread_table, of version 1: a header of 64 bytes and as many slots as it
// says. Values are written one after the other while it is read, so that a slot is read twice.
#include "src/cli/thread_words.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "src/cli/process_memory.h"

namespace weft::cli {
namespace {

struct Header {
  char magic[8];
  uint32_t version, slot_bytes, slots, lost;
  uint8_t reserved[40];
};
struct Slot {
  uint32_t tid, state;
  int64_t since;
  uint64_t program;
  int32_t entry;
  uint32_t reserved0;
  uint64_t text;
  uint8_t reserved[24];
};
static_assert(sizeof(Header) == 64 && sizeof(Slot) == 64);

constexpr uint32_t kMostSlots = 1 << 16;
constexpr size_t kMostText = 200;
constexpr std::string_view kStates[] = {"idle",
                                        "the caller's own work, or recording",
                                        "looking a program up",
                                        "waiting for the compiler",
                                        "waiting for room behind launches in flight",
                                        "waiting for memory",
                                        "waiting for results",
                                        "launching",
                                        "running",
                                        "copying",
                                        "compiling",
                                        "helping with a kernel",
                                        "reading or writing files"};

// Byte by byte at the end of a page, behind which there may be nothing.
std::string TextAt(pid_t process, uint64_t address) {
  char text[kMostText];
  constexpr uint64_t kPage = 4096;
  size_t got = 0;
  while (got < kMostText) {
    const size_t want = std::min<size_t>(kMostText - got, kPage - (address + got) % kPage);
    if (ReadMemory(process, address + got, text + got, want) != want) break;
    if (std::memchr(text + got, 0, want) != nullptr) return std::string(text);
    got += want;
  }
  return "";
}

std::string WordOf(pid_t process, const Slot& slot) {
  std::string word =
      slot.state < std::size(kStates) ? std::string(kStates[slot.state]) : "state " + std::to_string(slot.state);
  if (slot.text != 0) {
    if (const std::string text = TextAt(process, slot.text); !text.empty()) word += " " + text;
  }
  if (slot.entry >= 0 && slot.program != 0) word += ", entry " + std::to_string(slot.entry);
  if (slot.program != 0) {
    char key[24];
    const std::string digits(key, std::to_chars(key, key + sizeof key, slot.program, 16).ptr);
    word += " of program " + std::string(16 - digits.size(), '0') + digits;
  }
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t passed = now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec - slot.since;
  if (slot.since > 0 && passed > 0) {
    char text[40];
    const double seconds = static_cast<double>(passed) / 1e9;
    word += " for " +
            std::string(text, std::to_chars(text, text + sizeof text, seconds, std::chars_format::fixed, 3).ptr) + " s";
  }
  return word;
}

}  // namespace

std::map<pid_t, std::string> ThreadWords(pid_t process, uint64_t address, std::string* problem) {
  std::map<pid_t, std::string> words;
  Header header = {};
  if (!ReadMemory(process, address, &header) || std::memcmp(header.magic, "weftthr", sizeof header.magic) != 0) {
    *problem = "the process's table of threads cannot be read";
    return words;
  }
  if (header.version != 1 || header.slot_bytes < sizeof(Slot) || header.slots > kMostSlots) {
    *problem = "the process's table of threads is of version " + std::to_string(header.version) + "; 1 is known here";
    return words;
  }
  for (uint32_t i = 0; i < header.slots; ++i) {
    const uint64_t at = address + sizeof header + uint64_t{i} * header.slot_bytes;
    Slot slot = {}, again = {};
    if (!ReadMemory(process, at, &slot) || slot.tid == 0) continue;
    if (ReadMemory(process, at, &again)) slot = again;
    words[static_cast<pid_t>(slot.tid)] = WordOf(process, slot);
  }
  if (header.lost > 0) *problem = std::to_string(header.lost) + " threads found no place in the process's table";
  return words;
}

}  // namespace weft::cli
