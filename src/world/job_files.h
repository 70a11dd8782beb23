// The model file and the cluster file that a job names. The coordinator takes their contents into
// the job, which travels to the workers, so that all of them use what the coordinator has read.
#pragma once

#include "base/result.h"
#include "world/load.h"

namespace tenuto {

// Puts the contents of device.profile and network.cluster into device.profile_content and
// network.cluster_content, as one line each.
//
// Errors: Invalid/Call  a file that cannot be read, or that is no such file; a content of more than
//         1 MiB; a content that the job gives and that is not the file's
Status take_files(LoadedJob& loaded);

// Reads device.layers and network.devices from these contents.
//
// Errors: as above; Invalid/Call  a content without the name of its file
Status read_contents(Job& job);

}  // namespace tenuto
