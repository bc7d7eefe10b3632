// Guesses which name somebody may have meant by one that there is not; for texts of errors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::c_api {

// "; did you mean 'matmul'? ", or "; " if no name is near.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> names);
// The same where nothing follows: "; did you mean 'matmul'?" or nothing.
std::string AtTheEnd(std::string guess);
// Among more names nobody looks for the nearest.
inline constexpr size_t kMostGuessed = 1 << 14;

}  // namespace weft::c_api
