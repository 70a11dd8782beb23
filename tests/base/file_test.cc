// Reads and writes plain files, and everything else that a path can name.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() {
    char name[] = "/tmp/tenuto-files-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Files() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return cat(folder_, "/", name); }
  // Number of names in the folder, to see that a write leaves no temporary file behind.
  size_t names() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  // The sentence of a refused write.
  static std::string refused(const Status& status) {
    EXPECT_FALSE(status.ok());
    return status.ok() ? "" : status.error().message;
  }

  std::string folder_;
};

TEST_F(Files, OnlyPlainFilesAreRead) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  struct Case {
    std::string path, says;
  };
  for (const Case& it :
       {Case{path("pipe"), "it is a pipe, expected a plain file"},
        Case{path("link"), "it is a pipe, expected a plain file"},
        Case{"/dev/zero", "it is a device, expected a plain file"},
        Case{folder_, "it is a folder, expected a plain file: name a file in it"},
        Case{path("none"), "No such file or directory"}, Case{"", "No such file or directory"},
        Case{"/proc/self/mem", "Input/output error"}}) {
    const auto text = read_file(it.path);
    ASSERT_FALSE(text.ok()) << it.path;
    EXPECT_EQ(text.error().message.find(cat("cannot read ", it.path, ": ", it.says)), 0u)
        << text.error().message;
    EXPECT_EQ(text.error().code, Code::Invalid);
  }
}

TEST_F(Files, AFileAboveTheLimitIsRefused) {
  ASSERT_TRUE(write_file(path("file"), "12345").ok());
  EXPECT_EQ(read_file(path("file"), 5).value(), "12345");
  EXPECT_EQ(read_file(path("file"), 4).error().message,
            cat("cannot read ", path("file"),
                ": it has 5 bytes, expected at most 4: check that it is the right file"));
  // A sparse file is refused because of the size that it reports.
  fs::resize_file(path("file"), uint64_t{1} << 40);
  EXPECT_FALSE(read_file(path("file")).ok());
  // Files in /proc report a size of 0, so they are read to their end.
  EXPECT_NE(read_file("/proc/self/status").value().find("Name:"), std::string::npos);
  EXPECT_FALSE(read_file("/proc/self/status", 10).ok());
}

TEST_F(Files, AnUnfinishedWriteLeavesTheOldFile) {
  ASSERT_TRUE(write_file(path("file"), "old").ok());
  {
    auto file = OutputFile::create(path("file"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().write("new").ok());
    EXPECT_EQ(read_file(path("file")).value(), "old");
  }
  EXPECT_EQ(read_file(path("file")).value(), "old");
  EXPECT_EQ(names(), 1u);
  ASSERT_TRUE(write_file(path("file"), "new").ok());
  EXPECT_EQ(read_file(path("file")).value(), "new");
  EXPECT_EQ(names(), 1u);
}

TEST_F(Files, LinksAndPermissionsAreKept) {
  fs::create_directory(path("there"));
  fs::create_symlink("there/file", path("link"));
  fs::create_symlink("link", path("links"));
  // The first write makes the file that the link leads to, the second one replaces it.
  for (const std::string text : {"one", "two"}) {
    ASSERT_TRUE(write_file(path("links"), text).ok());
    EXPECT_TRUE(fs::is_symlink(path("link")));
    EXPECT_TRUE(fs::is_symlink(path("links")));
    EXPECT_EQ(read_file(path("there/file")).value(), text);
    fs::permissions(path("there/file"), fs::perms::owner_read | fs::perms::owner_write);
  }
  ASSERT_TRUE(write_file(path("links"), "three").ok());
  EXPECT_EQ(fs::status(path("there/file")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("circle", path("circle"));
  EXPECT_EQ(refused(write_file(path("circle"), "text")),
            cat("cannot write ", path("circle"), ": Too many levels of symbolic links"));
}

TEST_F(Files, APipeStaysAPipe) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_file(path("pipe"), "text").ok());
  char buffer[8] = {};
  EXPECT_EQ(read(reader, buffer, sizeof(buffer)), 4);
  EXPECT_EQ(std::string(buffer), "text");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_NE(refused(write_file(path("pipe"), "text")).find("without a reader"), std::string::npos);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(names(), 1u);
}

TEST_F(Files, ADeviceStaysADevice) {
  // A null device of the test's own, so that nothing else is harmed if it is lost.
  if (mknod(path("device").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "this user may not make devices";
  }
  const Status written = write_file(path("device"), "text");
  if (!written.ok()) GTEST_SKIP() << "devices do not work in /tmp: " << written.error().message;
  EXPECT_TRUE(fs::is_character_file(path("device")));
  EXPECT_EQ(names(), 1u);
}

TEST_F(Files, AFullDiskIsReportedWithTheFileName) {
  const Status full = write_file("/dev/full", "text");
  EXPECT_EQ(refused(full).find("cannot write /dev/full: No space left on device; free some space"),
            0u);
  EXPECT_EQ(full.error().code, Code::Exhausted);
  EXPECT_EQ(refused(write_file(folder_, "text")),
            cat("cannot write ", folder_, ": Is a directory"));
  EXPECT_EQ(refused(write_file(path("none/file"), "text")),
            cat("cannot write ", path("none/file"), ": No such file or directory"));
}

// A write to the name of an open descriptor goes to the descriptor's position in its file.
TEST_F(Files, ADescriptorIsWrittenAtItsPosition) {
  const int descriptor = open(path("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(descriptor, 0);
  ASSERT_EQ(write(descriptor, "one ", 4), 4);
  ASSERT_TRUE(write_file(cat("/dev/fd/", descriptor), "two ").ok());
  ASSERT_EQ(write(descriptor, "three", 5), 5);
  close(descriptor);
  EXPECT_EQ(read_file(path("file")).value(), "one two three");
}

}  // namespace
}  // namespace tenuto
