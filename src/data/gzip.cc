// See gzip.h.
#include "src/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "src/runtime/status.h"

namespace weft {

absl::StatusOr<std::string> Gzip(std::string_view bytes) {
  constexpr int kGzip = 15 + 16;  // the largest window, and gzip's header and end
  constexpr int kLevel = 6, kMemory = 8;
  z_stream stream = {};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("no memory to compress");
  }
  std::string out;
  std::string piece(size_t{256} << 10, '\0');
  int outcome = Z_OK;
  while (outcome != Z_STREAM_END) {
    if (stream.avail_in == 0 && !bytes.empty()) {
      const size_t next = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = static_cast<uInt>(next);
      bytes.remove_prefix(next);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    outcome = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    if (outcome != Z_OK && outcome != Z_STREAM_END) break;
    out.append(piece, 0, piece.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  if (outcome != Z_STREAM_END) return InternalError("zlib's deflate gave ", outcome);
  return out;
}

}  // namespace weft
