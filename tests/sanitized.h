// True under a sanitizer: every run takes several times as long, so long tests run only a part.
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
