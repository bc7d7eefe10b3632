// Cap'n Proto at arm's length: builds single-segment messages and reads untrusted ones. Exceptions of kj stay inside
// `Guarded`, nothing is logged to stderr, limits are set before parsing. Included by .cc files of this folder only.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "serialization/limits.h"
#include "src/runtime/status.h"

namespace weft {

// kj would print warnings to stderr; a library may not. It insists on a callback on the real stack, which AddressSanitizer's
// builds of it do not have: these do without.
#if defined(__has_feature)
#define WEFT_HAS_FAKE_STACK __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define WEFT_HAS_FAKE_STACK 1
#else
#define WEFT_HAS_FAKE_STACK 0
#endif
#if WEFT_HAS_FAKE_STACK
struct SilentKj {
  SilentKj() {}
};
#else
class SilentKj final : public kj::ExceptionCallback {
 public:
  void logMessage(kj::LogSeverity, const char*, int, int, kj::String&&) override {}
};
#endif

// Runs `body` (a function returning absl::Status) and turns what it throws into a status. `what` names the message that is
// read or built. An exception costs about 10 us, so only broken files take this road.
template <typename Body>
absl::Status Guarded(absl::StatusCode code, std::string_view what, Body&& body) {
  try {
    SilentKj silent;
    return body();
  } catch (const kj::Exception& e) {
    // kj reports ENOMEM so, and nothing that a broken message could cause.
    if (e.getType() == kj::Exception::Type::OVERLOADED) {
      return UserErrorOf(absl::StatusCode::kResourceExhausted, "out of memory at ", what);
    }
    // getDescription, never what(): the latter may run addr2line.
    return UserErrorOf(code, what, " is not a valid message: ", std::string_view(e.getDescription().cStr()));
  } catch (const std::bad_alloc&) {
    return UserErrorOf(absl::StatusCode::kResourceExhausted, "out of memory at ", what);
  } catch (const std::exception& e) {
    return UserErrorOf(code, what, ": ", e.what());
  }
}

// Builds one message in one segment. `fill(Root::Builder)` runs again with twice the room if the guess was too small;
// messages past `most` bytes are an error. The result is standard framing: segment table, then the segment.
template <typename Root, typename Fill>
absl::Status BuildMessage(std::string_view what, size_t guess_bytes, std::vector<std::byte>* out, Fill&& fill,
                          uint64_t most = kMaxMetaBytes) {
  return Guarded(absl::StatusCode::kInternal, what, [&]() -> absl::Status {
    for (size_t words = guess_bytes / 8 + 16;; words *= 2) {
      if (words * 8 > 2 * most) return InternalError(what, " does not fit ", most, " bytes");
      capnp::MallocMessageBuilder builder(static_cast<unsigned>(words), capnp::AllocationStrategy::FIXED_SIZE);
      fill(builder.initRoot<Root>());
      const auto segments = builder.getSegmentsForOutput();
      if (segments.size() != 1) continue;
      const size_t bytes = segments[0].size() * sizeof(capnp::word);
      if (bytes + 8 > most) return InternalError(what, " has ", bytes, " bytes; at most ", most, " fit");
      out->resize(8 + bytes);
      const uint32_t table[2] = {0, static_cast<uint32_t>(segments[0].size())};
      std::memcpy(out->data(), table, 8);
      if (bytes > 0) std::memcpy(out->data() + 8, segments[0].begin(), bytes);
      return absl::OkStatus();
    }
  });
}

// Reads one message from private, 8-byte aligned memory and hands its root to `use(Root::Reader) -> absl::Status`.
template <typename Root, typename Use>
absl::Status ReadMessage(std::string_view what, std::span<const std::byte> message, Use&& use) {
  const auto broken = [&](const auto&... text) {
    return UserErrorOf(absl::StatusCode::kDataLoss, what, " is not a valid message: ", text...);
  };
  if (message.size() < 16 || message.size() % 8 != 0) return broken("its length is ", message.size(), " bytes");
  uint32_t table[2];
  std::memcpy(table, message.data(), 8);
  if (table[0] != 0) return broken("it has ", uint64_t{table[0]} + 1, " segments where one is allowed");
  if (uint64_t{table[1]} * 8 + 8 != message.size()) {
    return broken("its segment has ", table[1], " words, its frame holds ", message.size() / 8 - 1);
  }
  return Guarded(absl::StatusCode::kDataLoss, what, [&]() -> absl::Status {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 2 * (message.size() / 8) + 1024;
    options.nestingLimit = static_cast<int>(kMaxNestingOfMessages);
    const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(message.data() + 8),
                                                  message.size() / 8 - 1);
    const kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments(&segment, 1);
    capnp::SegmentArrayMessageReader reader(segments, options);
    return use(reader.getRoot<Root>());
  });
}

// A whole string, because kj wants the NUL behind the text.
inline capnp::Text::Reader ToText(const std::string& text) { return capnp::Text::Reader(text.c_str(), text.size()); }
inline capnp::Data::Reader ToData(std::span<const std::byte> data) {
  return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(data.data()), data.size());
}
inline capnp::Data::Reader ToData(std::string_view data) { return ToData(std::as_bytes(std::span(data))); }
inline std::string_view FromText(capnp::Text::Reader text) { return {text.begin(), text.size()}; }
inline std::string_view FromData(capnp::Data::Reader data) {
  return {reinterpret_cast<const char*>(data.begin()), data.size()};
}

}  // namespace weft
