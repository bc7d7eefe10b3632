// See pickle.h. The opcodes are those of Lib/pickletools.py, whose text is their specification.
#include "serialization/interchange/pickle.h"

#include <algorithm>
#include <bit>

#include "absl/container/flat_hash_map.h"
#include "serialization/framing.h"
#include "serialization/interchange/tensor_file.h"
#include "src/runtime/status.h"

namespace weft {

std::string_view NameOf(PickleValue::Kind kind) {
  constexpr std::string_view kNames[] = {"None",  "bool", "int",  "int",    "float",  "str",    "bytes",
                                         "tuple", "list", "dict", "global", "object", "storage"};
  return kNames[static_cast<size_t>(kind)];
}

bool PickleBytes::Have(uint64_t size, absl::Status* status) {
  constexpr uint64_t kAhead = 64 << 10;
  if (bytes_.size() - at_ >= size) return true;
  if (file_ == nullptr || size > kMaxPickleBytes || at_ + size > kMaxPickleBytes) return false;
  const uint64_t missing = size - (bytes_.size() - at_);
  if (missing > left_) return false;
  const uint64_t more = std::min(left_, std::max(missing, kAhead)), old = bytes_.size();
  bytes_.resize(old + more);
  *status = file_->ReadAt(static_cast<int64_t>(old), std::as_writable_bytes(std::span(bytes_)).subspan(old));
  left_ -= more;
  return status->ok();
}

std::string_view PickleBytes::Take(uint64_t size, absl::Status* status) {
  if (!Have(size, status)) return {};
  at_ += size;
  return std::string_view(bytes_).substr(at_ - size, size);
}

std::string_view PickleBytes::Line(absl::Status* status) {
  constexpr uint64_t kLongest = 4096;
  for (uint64_t length = 0; length < kLongest && Have(length + 1, status); ++length) {
    if (bytes_[at_ + length] != '\n') continue;
    const std::string_view line = Take(length + 1, status);
    return line.substr(0, length);
  }
  return {};
}

// The stack machine that a pickle is a program of.
class PickleMachine {
 public:
  PickleMachine(PickleBytes& bytes, PickleHost& host, const std::string& what, Pickle* out)
      : bytes_(bytes), host_(host), what_(what), out_(out) {}

  absl::Status Run() {
    for (bool stopped = false; !stopped;) {
      if (out_->values_.size() > kMaxPickleValues) return Bad("the pickle has more than ", kMaxPickleValues, " values");
      if (stack_.size() > kMaxPickleStack)
        return Bad("the pickle keeps more than ", kMaxPickleStack, " values waiting");
      const std::string_view code = Take(1);
      if (code.empty()) return Ended();
      WEFT_RETURN_IF_ERROR(Step(code[0], &stopped));
    }
    return absl::OkStatus();
  }

 private:
  using Kind = PickleValue::Kind;

  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return Damaged(what_, bytes_.position(), text...);
  }
  absl::Status Ended() const {
    return status_.ok() ? Bad("the pickle ends too early, or is longer than ", kMaxPickleBytes, " bytes") : status_;
  }
  std::string_view Take(uint64_t size) { return bytes_.Take(size, &status_); }
  // A little-endian number of so many bytes.
  bool Number(int width, uint64_t* out) {
    const std::string_view raw = Take(static_cast<uint64_t>(width));
    if (raw.empty()) return false;
    *out = 0;
    for (size_t i = raw.size(); i-- > 0;) *out = *out << 8 | static_cast<uint8_t>(raw[i]);
    return true;
  }

  PickleId New(PickleValue value) {
    out_->values_.push_back(std::move(value));
    return static_cast<PickleId>(out_->values_.size() - 1);
  }
  absl::Status Push(PickleValue value) { return stack_.push_back(New(std::move(value))), absl::OkStatus(); }
  absl::Status PushInt(int64_t number) { return Push({.kind = Kind::kInt, .number = number}); }
  // Above the last mark, which pops do not pass.
  size_t Above() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  bool Pop(PickleId* out) {
    if (Above() == 0) return false;
    *out = stack_.back();
    return stack_.pop_back(), true;
  }
  // Takes the values above the mark, and the mark, off the stack.
  bool PopMark(std::vector<PickleId>* out) {
    if (marks_.empty()) return false;
    out->assign(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    return marks_.pop_back(), true;
  }
  absl::Status Empty() const { return Bad("the pickle takes from an empty stack"); }

  absl::Status Step(char code, bool* stopped);
  absl::Status Literal(char code);
  absl::Status Text(int width, Kind kind);
  absl::Status Long(int width);
  absl::Status Tuple(size_t count);
  absl::Status Collect(Kind kind);
  absl::Status Append(std::vector<PickleId> items, Kind kind);
  absl::Status Memo(int width, bool put);
  absl::Status Construct(char code);

  PickleBytes& bytes_;
  PickleHost& host_;
  const std::string& what_;
  Pickle* const out_;
  absl::Status status_;
  std::vector<PickleId> stack_;
  uint64_t copied_ = 0;        // bytes of what calls gave: each may be as long as its argument
  std::vector<size_t> marks_;  // sizes of the stack
  absl::flat_hash_map<uint64_t, PickleId> memo_;
};

absl::Status PickleMachine::Step(char code, bool* stopped) {
  PickleId id = 0;
  std::vector<PickleId> items;
  switch (code) {
    case '(': return marks_.push_back(stack_.size()), absl::OkStatus();
    case '.':
      *stopped = true;
      if (!marks_.empty() || stack_.size() != 1) return Bad("the pickle ends with ", stack_.size(), " values, not one");
      return out_->root_ = stack_[0], absl::OkStatus();
    case '0': return Pop(&id) ? absl::OkStatus() : Empty();
    case '1': return PopMark(&items) ? absl::OkStatus() : Empty();
    case '2': return Above() == 0 ? Empty() : (stack_.push_back(stack_.back()), absl::OkStatus());
    case 'q': return Memo(1, true);
    case 'r': return Memo(4, true);
    case 'h': return Memo(1, false);
    case 'j': return Memo(4, false);
    case ')': return Tuple(0);
    case '\x85': return Tuple(1);
    case '\x86': return Tuple(2);
    case '\x87': return Tuple(3);
    case 't': return Collect(Kind::kTuple);
    case 'l': return Collect(Kind::kList);
    case 'd': return Collect(Kind::kDict);
    case ']': return Push({.kind = Kind::kList});
    case '}': return Push({.kind = Kind::kDict});
    case 'a': return Pop(&id) ? Append({id}, Kind::kList) : Empty();
    case 'e': return PopMark(&items) ? Append(std::move(items), Kind::kList) : Empty();
    case 's': {
      PickleId key = 0;
      return Pop(&id) && Pop(&key) ? Append({key, id}, Kind::kDict) : Empty();
    }
    case 'u': return PopMark(&items) ? Append(std::move(items), Kind::kDict) : Empty();
    case 'c':
    case 'R':
    case 'b':
    case 'Q': return Construct(code);
    default: return Literal(code);
  }
}

absl::Status PickleMachine::Literal(char code) {
  uint64_t number = 0;
  switch (code) {
    case '\x80':
      if (!Number(1, &number)) return Ended();
      if (number == 2) return absl::OkStatus();
      return NotForWeft(what_, "a pickle of protocol ", number, "; Weft reads protocol 2, which torch.save writes");
    case 'N': return Push({});
    case '\x88': return Push({.kind = Kind::kBool, .number = 1});
    case '\x89': return Push({.kind = Kind::kBool});
    case 'K': return Number(1, &number) ? PushInt(static_cast<int64_t>(number)) : Ended();
    case 'M': return Number(2, &number) ? PushInt(static_cast<int64_t>(number)) : Ended();
    case 'J': return Number(4, &number) ? PushInt(static_cast<int32_t>(static_cast<uint32_t>(number))) : Ended();
    case '\x8a': return Long(1);
    case '\x8b': return Long(4);
    case 'G':
      if (!Number(8, &number)) return Ended();
      return Push({.kind = Kind::kFloat, .real = std::bit_cast<double>(__builtin_bswap64(number))});
    case 'X': return Text(4, Kind::kText);
    case 'U': return Text(1, Kind::kText);
    case 'T': return Text(4, Kind::kText);
    default:
      return NotForWeft(what_, "the pickle has the opcode 0x", absl::Hex(static_cast<uint8_t>(code), absl::kZeroPad2),
                        " at byte ", bytes_.position() - 1, ", which no file of weights needs");
  }
}

absl::Status PickleMachine::Text(int width, Kind kind) {
  uint64_t size = 0;
  if (!Number(width, &size)) return Ended();
  const std::string_view text = Take(size);
  if (text.size() != size) return Ended();
  return Push({.kind = kind, .text = std::string(text)});
}

absl::Status PickleMachine::Long(int width) {
  uint64_t size = 0;
  if (!Number(width, &size)) return Ended();
  const std::string_view raw = Take(size);
  if (raw.size() != size) return Ended();
  if (size > 8) return Push({.kind = Kind::kBigInt, .text = std::string(raw)});
  uint64_t number = size > 0 && static_cast<int8_t>(raw.back()) < 0 ? ~uint64_t{0} : 0;
  for (size_t i = raw.size(); i-- > 0;) number = number << 8 | static_cast<uint8_t>(raw[i]);
  return PushInt(static_cast<int64_t>(number));
}

absl::Status PickleMachine::Tuple(size_t count) {
  if (Above() < count) return Empty();
  PickleValue tuple{.kind = Kind::kTuple};
  tuple.items.assign(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return Push(std::move(tuple));
}

absl::Status PickleMachine::Collect(Kind kind) {
  PickleValue value{.kind = kind};
  if (!PopMark(&value.items)) return Empty();
  if (kind == Kind::kDict && value.items.size() % 2 != 0) return Bad("the pickle has a dict with a key and no value");
  return Push(std::move(value));
}

// Appends to the list or dict that is then on top.
absl::Status PickleMachine::Append(std::vector<PickleId> items, Kind kind) {
  if (Above() == 0) return Empty();
  PickleValue& to = out_->values_[stack_.back()];
  if (to.kind != kind || (kind == Kind::kDict && items.size() % 2 != 0)) {
    return Bad("the pickle adds ", items.size(), " items for a ", NameOf(kind), " to a ", NameOf(to.kind));
  }
  to.items.insert(to.items.end(), items.begin(), items.end());
  return absl::OkStatus();
}

absl::Status PickleMachine::Memo(int width, bool put) {
  uint64_t index = 0;
  if (!Number(width, &index)) return Ended();
  if (put) {
    if (Above() == 0) return Empty();
    return memo_[index] = stack_.back(), absl::OkStatus();
  }
  const auto found = memo_.find(index);
  if (found == memo_.end()) return Bad("the pickle asks for memo ", index, ", which it has not filled");
  return stack_.push_back(found->second), absl::OkStatus();
}

absl::Status PickleMachine::Construct(char code) {
  PickleId top = 0, below = 0;
  if (code == 'c') {
    const std::string module(bytes_.Line(&status_));
    const std::string name = absl::StrCat(module, ".", bytes_.Line(&status_));
    if (!status_.ok() || module.empty() || name.size() == module.size() + 1) return Ended();
    WEFT_RETURN_IF_ERROR(host_.Global(name));
    return Push({.kind = Kind::kGlobal, .text = name});
  }
  if (!Pop(&top)) return Empty();
  if (code == 'Q') {
    WEFT_ASSIGN_OR_RETURN(PickleValue value, host_.Persistent(*out_, top));
    return Push(std::move(value));
  }
  if (Above() == 0) return Empty();
  if (code == 'b') {
    // Attributes of an OrderedDict, which state_dict() uses for its own bookkeeping.
    if (out_->value(stack_.back()).kind == Kind::kDict) return absl::OkStatus();
    return Bad("the pickle sets attributes of a ", NameOf(out_->value(stack_.back()).kind));
  }
  Pop(&below);
  const PickleValue &function = out_->value(below), &arguments = out_->value(top);
  if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) {
    return Bad("the pickle calls a ", NameOf(function.kind), " with a ", NameOf(arguments.kind));
  }
  WEFT_ASSIGN_OR_RETURN(PickleValue value, host_.Reduce(*out_, function.text, arguments.items));
  copied_ += value.items.size() * sizeof(PickleId) + value.text.size();
  if (copied_ > kMaxPickleBytes) return Bad("the pickle copies the same values again and again");
  return Push(std::move(value));
}

absl::StatusOr<Pickle> Pickle::Read(PickleBytes& bytes, PickleHost& host, const std::string& what) {
  Pickle pickle;
  WEFT_RETURN_IF_ERROR(PickleMachine(bytes, host, what, &pickle).Run());
  return pickle;
}

}  // namespace weft
