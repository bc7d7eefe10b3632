// See python_stacks.h. Where things lie differs between versions: from 3.13 on they say it in their own memory, that of those before stands here.
#include "src/cli/python_stacks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "src/cli/process_memory.h"

namespace weft::cli {
namespace {

constexpr size_t kMostFrames = 256, kMostThreads = 4096, kMostInterpreters = 64;
constexpr size_t kMostCharacters = 1000;
constexpr int64_t kMostLineTable = 1 << 22;
// A frame that only marks where Python's code was called from C.
constexpr uint8_t kOwnedByC = 3;
// Bits of a reference from a frame that are no part of the address (3.14).
constexpr uint64_t kTag = 3;
constexpr int kReadings = 5;

// Offsets in bytes.
struct Layout {
  uint64_t interpreters;                       // of the runtime
  uint64_t interpreter_next, threads;          // of an interpreter
  uint64_t thread_next, thread_number, frame;  // of a thread
  bool through_cframe;                         // `frame` is that of an object that has it at `cframe_frame`
  uint64_t cframe_frame;
  uint64_t previous, code, instruction, owner;        // of a frame
  uint64_t file, name, line_table, first_line, text;  // of code; `text` is its instructions
  uint64_t bytes_size, bytes_data;
  uint64_t characters, state, after_ascii, after_compact;  // of a str
};
constexpr Layout k311 = {40,  0,   16,  8,  160, 56, true, 8,  48, 32, 56, 69,
                         112, 128, 136, 72, 184, 16, 32,   16, 32, 48, 72};
constexpr Layout k312 = {40, 0, 72, 8, 144, 56, true, 0, 8, 0, 56, 70, 112, 128, 136, 68, 192, 16, 32, 16, 32, 40, 56};

class Interpreter {
 public:
  Interpreter(pid_t process, const Layout& layout) : process_(process), at_(layout) {}

  std::map<pid_t, std::vector<NativeFrame>> Threads(uint64_t runtime) const {
    std::map<pid_t, std::vector<NativeFrame>> all;
    uint64_t interpreter = Word(runtime + at_.interpreters);
    for (size_t i = 0; interpreter != 0 && i < kMostInterpreters; ++i) {
      uint64_t thread = Word(interpreter + at_.threads);
      for (size_t k = 0; thread != 0 && k < kMostThreads; ++k) {
        const auto number = static_cast<pid_t>(Word(thread + at_.thread_number));
        if (std::vector<NativeFrame> frames = Settled(thread); !frames.empty()) all[number] = std::move(frames);
        thread = Word(thread + at_.thread_next);
      }
      interpreter = Word(interpreter + at_.interpreter_next);
    }
    return all;
  }

 private:
  uint64_t Word(uint64_t address) const {
    uint64_t word = 0;
    return ReadMemory(process_, address, &word) ? word : 0;
  }

  // The same twice in a row.
  std::vector<NativeFrame> Settled(uint64_t thread) const {
    std::vector<NativeFrame> before = Frames(thread);
    for (int i = 1; i < kReadings; ++i) {
      std::vector<NativeFrame> now = Frames(thread);
      const bool same = std::ranges::equal(before, now, [](const NativeFrame& a, const NativeFrame& b) {
        return a.function == b.function && a.location == b.location;
      });
      if (same) return now;
      before = std::move(now);
    }
    return {};
  }

  std::vector<NativeFrame> Frames(uint64_t thread) const {
    std::vector<NativeFrame> frames;
    uint64_t frame = Word(thread + at_.frame);
    if (at_.through_cframe && frame != 0) frame = Word(frame + at_.cframe_frame);
    for (size_t i = 0; frame != 0 && i < kMostFrames; ++i) {
      uint8_t owner = 0;
      const uint64_t code = Word(frame + at_.code) & ~kTag;
      if (ReadMemory(process_, frame + at_.owner, &owner) && owner < kOwnedByC && code != 0) {
        const std::string file = Text(Word(code + at_.file));
        const int64_t line = LineOf(code, Word(frame + at_.instruction));
        frames.push_back(
            {.function = Text(Word(code + at_.name)), .location = line > 0 ? file + ":" + std::to_string(line) : file});
      }
      frame = Word(frame + at_.previous);
    }
    return frames;
  }

  // A str of 1, 2 or 4 bytes a character as UTF-8, its first characters.
  std::string Text(uint64_t address) const {
    uint32_t state = 0;
    if (address == 0 || !ReadMemory(process_, address + at_.state, &state)) return "?";
    const size_t width = state >> 2 & 7;
    const bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
    const auto count = static_cast<size_t>(std::min<uint64_t>(Word(address + at_.characters), kMostCharacters));
    if (!compact || (width != 1 && width != 2 && width != 4)) return "?";
    std::vector<uint8_t> bytes(count * width);
    const uint64_t data = address + (ascii ? at_.after_ascii : at_.after_compact);
    if (ReadMemory(process_, data, bytes.data(), bytes.size()) != bytes.size()) return "?";
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      uint32_t character = 0;
      std::memcpy(&character, bytes.data() + i * width, width);
      Append(character, &text);
    }
    return text;
  }

  static void Append(uint32_t c, std::string* out) {
    const auto tail = [&](int shift) { out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3f))); };
    if (c < 0x80) {
      out->push_back(static_cast<char>(c < 0x20 ? ' ' : c));
    } else if (c < 0x800) {
      out->push_back(static_cast<char>(0xc0 | c >> 6)), tail(0);
    } else if (c < 0x10000) {
      out->push_back(static_cast<char>(0xe0 | c >> 12)), tail(6), tail(0);
    } else {
      out->push_back(static_cast<char>(0xf0 | (c >> 18 & 7))), tail(12), tail(6), tail(0);
    }
  }

  // The line of an instruction, from the code's table of locations (PEP 626, PEP 657); 0: none.
  int64_t LineOf(uint64_t code, uint64_t instruction) const {
    int32_t line = 0;
    const uint64_t table = Word(code + at_.line_table), text = code + at_.text;
    const auto size = static_cast<int64_t>(table == 0 ? 0 : Word(table + at_.bytes_size));
    if (!ReadMemory(process_, code + at_.first_line, &line) || size <= 0 || size > kMostLineTable) return 0;
    if (instruction < text) return line;  // before the first instruction
    std::vector<uint8_t> bytes(static_cast<size_t>(size));
    if (ReadMemory(process_, table + at_.bytes_data, bytes.data(), bytes.size()) != bytes.size()) return 0;
    return LineIn(bytes, line, (instruction - text) / 2);
  }

  // Entries of the table begin with 1, four bits of what kind they are, and three of how many instructions they are for, less one.
  static int64_t LineIn(const std::vector<uint8_t>& table, int64_t line, uint64_t unit) {
    constexpr uint8_t kShortEnd = 10, kNoColumns = 13, kLong = 14, kNone = 15;
    size_t at = 0;
    const auto number = [&] {  // six bits a byte, the least first
      uint64_t value = 0;
      for (int shift = 0; at < table.size() && shift < 60; shift += 6) {
        const uint8_t byte = table[at++];
        value |= static_cast<uint64_t>(byte & 0x3f) << shift;
        if ((byte & 0x40) == 0) break;
      }
      return value;
    };
    const auto signed_number = [&] {
      const uint64_t value = number();
      const auto half = static_cast<int64_t>(value >> 1);
      return (value & 1) != 0 ? -half : half;
    };
    for (uint64_t until = 0; at < table.size();) {
      const uint8_t head = table[at++], kind = head >> 3 & 15;
      if (kind == kLong) {
        line += signed_number();
        number(), number(), number();
      } else if (kind == kNoColumns) {
        line += signed_number();
      } else if (kind >= kShortEnd && kind < kNoColumns) {
        line += kind - kShortEnd, at += 2;
      } else if (kind < kShortEnd) {
        ++at;
      }
      until += (head & 7) + 1;
      if (unit < until) return kind == kNone ? 0 : line;
    }
    return 0;
  }

  const pid_t process_;
  const Layout& at_;
};

// Places of the words that a Layout is made of in a version's table of offsets (_Py_DebugOffsets, pycore_debug_offsets.h).
struct TableWords {
  uint8_t interpreters, interpreter_next, threads, thread_next, thread_number, frame;
  uint8_t previous, code, instruction, owner;
  uint8_t file, name, line_table, first_line, text;
  uint8_t bytes_size, bytes_data, characters, state, ascii_size;
};
constexpr TableWords k313 = {4, 7, 8, 20, 24, 22, 28, 29, 30, 32, 34, 36, 37, 38, 42, 64, 65, 68, 67, 69};
constexpr TableWords k314 = {4, 7, 8, 23, 27, 25, 31, 32, 33, 35, 39, 41, 42, 43, 47, 74, 75, 78, 77, 79};

// CPython begins its runtime with that table from 3.13 on: words behind eight bytes of text.
std::optional<Layout> OwnLayout(pid_t process, uint64_t runtime, const TableWords& at, bool* free_threaded) {
  struct {
    char magic[8];
    std::array<uint64_t, 80> word;
  } table;
  if (!ReadMemory(process, runtime, &table) || std::memcmp(table.magic, "xdebugpy", sizeof table.magic) != 0) return {};
  const auto& w = table.word;
  *free_threaded = w[1] != 0;
  if (*free_threaded) return {};
  constexpr uint64_t kCompactMore = 16;  // that a str has before its characters if one of them is not of ASCII
  return Layout{.interpreters = w[at.interpreters],
                .interpreter_next = w[at.interpreter_next],
                .threads = w[at.threads],
                .thread_next = w[at.thread_next],
                .thread_number = w[at.thread_number],
                .frame = w[at.frame],
                .through_cframe = false,
                .cframe_frame = 0,
                .previous = w[at.previous],
                .code = w[at.code],
                .instruction = w[at.instruction],
                .owner = w[at.owner],
                .file = w[at.file],
                .name = w[at.name],
                .line_table = w[at.line_table],
                .first_line = w[at.first_line],
                .text = w[at.text],
                .bytes_size = w[at.bytes_size],
                .bytes_data = w[at.bytes_data],
                .characters = w[at.characters],
                .state = w[at.state],
                .after_ascii = w[at.ascii_size],
                .after_compact = w[at.ascii_size] + kCompactMore};
}

}  // namespace

std::map<pid_t, std::vector<NativeFrame>> PythonFrames(pid_t process, const PythonPlace& place, std::string* problem) {
  uint64_t version = 0;
  if (place.version == 0 || !ReadMemory(process, place.version, &version)) {
    *problem = "the process runs a Python before 3.11, whose frames are not known here";
    return {};
  }
  const auto major = static_cast<unsigned>(version >> 24 & 255), minor = static_cast<unsigned>(version >> 16 & 255);
  std::optional<Layout> layout;
  if (major == 3 && minor == 11) layout = k311;
  if (major == 3 && minor == 12) layout = k312;
  bool free_threaded = false;
  if (major == 3 && minor == 13) layout = OwnLayout(process, place.runtime, k313, &free_threaded);
  if (major == 3 && minor == 14) layout = OwnLayout(process, place.runtime, k314, &free_threaded);
  if (!layout) {
    *problem = "the process runs " + std::string(free_threaded ? "a free-threaded Python " : "Python ") +
               std::to_string(major) + "." + std::to_string(minor) +
               ", whose frames are not known here (those of 3.11 to 3.14 with a global lock are)";
    return {};
  }
  return Interpreter(process, *layout).Threads(place.runtime);
}

}  // namespace weft::cli
