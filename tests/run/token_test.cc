// Tokens: which characters they may have, and the files that hold them.
#include "run/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace tenuto {
namespace {

class Token : public testing::Test {
 protected:
  Token() : folder_(cat(testing::TempDir(), "/tenuto-token-", getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Token() override { std::filesystem::remove_all(folder_); }

  // Why a file with this text is refused; empty: it is not.
  std::string refusal(const std::string& text) {
    const std::string file = folder_ + "/token";
    std::ofstream(file, std::ios::binary) << text;
    chmod(file.c_str(), 0600);
    const Result<std::string> token = read_token(file);
    return token.ok() ? "" : token.error().message;
  }

  const std::string folder_;
};

TEST_F(Token, IsOneLineOfPlainSigns) {
  EXPECT_EQ(refusal("secret\n"), "");
  EXPECT_EQ(refusal(std::string(1024, 'x').append("\r\n")), "");
  EXPECT_NE(refusal(" \n").find("is empty: expected one line"), std::string::npos);
  EXPECT_NE(refusal(std::string(1025, 'x'))
                .find("holds a token of 1025 bytes: expected one line of "
                      "at most 1024"),
            std::string::npos);
  for (const char* text : {"two\nlines", "two words", "t\xf6ken", "\xc3\xb6", "a\tb"}) {
    EXPECT_NE(refusal(text).find("not all of them printable ASCII"), std::string::npos) << text;
  }
}

// The error names the kind of file before its permissions: nobody should change those of a folder
// or a device.
TEST_F(Token, MustBeInAPlainFile) {
  chmod(folder_.c_str(), 0755);
  EXPECT_NE(read_token(folder_).error().message.find("is a folder"), std::string::npos);
  EXPECT_NE(read_token("/dev/null").error().message.find("is not a regular file"),
            std::string::npos);
  const std::string made = folder_ + "/made";
  const Result<std::string> fresh = read_or_make_token(made);
  ASSERT_TRUE(fresh.ok()) << fresh.error().message;
  EXPECT_EQ(read_token(made).value(), fresh.value());
}

}  // namespace
}  // namespace tenuto
