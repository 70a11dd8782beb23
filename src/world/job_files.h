// Reads the model file and the cluster file of a job. The coordinator puts their contents into the
// job and sends it to the workers, so that all use the same contents.
#pragma once

#include "base/result.h"
#include "world/load.h"

namespace tenuto {

// Puts the contents of device.profile and network.cluster into device.profile_content and
// network.cluster_content, as one line each.
//
// Errors: Invalid/Call  a file that cannot be read or is not JSON; a content of more than 1 MiB; a
//         job that gives a content itself, different from that of the file
Status take_files(LoadedJob& loaded);

// Reads device.layers and network.devices from these contents.
//
// Errors: Invalid/Call  a content of another form; a content without the name of its file
Status read_contents(Job& job);

}  // namespace tenuto
