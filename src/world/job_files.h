// Reads the model file, the cluster file and the chooser file of a job. The coordinator puts their
// contents into the job and sends it to the workers, so that all use the same contents.
#pragma once

#include "base/result.h"
#include "world/load.h"

namespace tenuto {

// Puts the contents of device.profile and network.cluster into device.profile_content and
// network.cluster_content, as one line each, and the text of sync.chooser_file into
// sync.chooser_content.
//
// Errors: Invalid/Call  a file that cannot be read; a model or cluster that is not JSON; a chooser
//         that is empty or not ASCII; a content of more than 1 MiB; a job that gives a content
//         itself, different from that of the file
Status take_files(LoadedJob& loaded);

// Reads device.layers and network.devices from these contents. The chooser is read when a run
// begins (sync/chooser_model.h).
//
// Errors: Invalid/Call  a content of another form; a content without the name of its file
Status read_contents(Job& job);

}  // namespace tenuto
