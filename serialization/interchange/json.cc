// See json.h.
#include "serialization/interchange/json.h"

#define JSON_NO_IO 1
#include <nlohmann/json.hpp>

#include "serialization/framing.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// The parser's callbacks; false ends it.
class Sax {
 public:
  Sax(int depth, JsonEvents& events, const std::string& file, uint64_t offset)
      : most_(depth), events_(events), file_(file), offset_(offset) {}

  absl::Status status;

  bool null() { return Goes(events_.Other("null")); }
  bool boolean(bool value) { return Goes(events_.Other(value ? "true" : "false")); }
  bool number_integer(Json::number_integer_t) { return Goes(events_.Other("a negative number")); }
  bool number_unsigned(Json::number_unsigned_t value) { return Goes(events_.Unsigned(value)); }
  bool number_float(Json::number_float_t, const Json::string_t&) {
    return Goes(events_.Other("a number with a fraction, or beyond 64 bits"));
  }
  bool string(Json::string_t& value) { return Goes(events_.String(std::move(value))); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool key(Json::string_t& value) { return Goes(events_.Key(std::move(value))); }
  bool start_object(size_t) { return Deeper() && Goes(events_.BeginObject()); }
  bool start_array(size_t) { return Deeper() && Goes(events_.BeginArray()); }
  bool end_object() { return --depth_, Goes(events_.EndObject()); }
  bool end_array() { return --depth_, Goes(events_.EndArray()); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    const uint64_t at = offset_ + (position == 0 ? 0 : position - 1);
    return Goes(Damaged(file_, at, "this is no JSON in UTF-8, or it ends too early"));
  }

 private:
  bool Goes(absl::Status result) {
    if (!result.ok()) status = std::move(result);
    return status.ok();
  }
  bool Deeper() {
    if (++depth_ <= most_) return true;
    return Goes(Damaged(file_, offset_, "the JSON here is nested deeper than ", most_, " levels"));
  }

  const int most_;
  int depth_ = 0;
  JsonEvents& events_;
  const std::string& file_;
  const uint64_t offset_;
};

}  // namespace

absl::Status ReadJson(std::string_view text, int depth, JsonEvents& events, const std::string& file, uint64_t offset) {
  Sax sax(depth, events, file, offset);
  if (Json::sax_parse(text.data(), text.data() + text.size(), &sax) || !sax.status.ok()) return sax.status;
  return Damaged(file, offset, "this is no JSON");
}

}  // namespace weft
