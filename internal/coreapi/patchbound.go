package coreapi

import (
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// maxPatchCopies bounds what the copy operations of one JSON patch may add, in bytes.
const maxPatchCopies = 3 << 20

// boundPatches makes the library refuse patches that copy a value into itself until memory ends (CVE-2019-1002100, attack
// row C7). The bound is a variable of the library, which the generic server's constructor, unused here, would set; every
// server in a process sets the same.
func boundPatches() { atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, maxPatchCopies) }
