// Whether a sanitizer makes every run several times as long, so that long tests do a part.
#pragma once

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

namespace tenuto {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tenuto
