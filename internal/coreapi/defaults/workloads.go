package defaults

const (
	RevisionsKept         = 10
	ProgressSeconds       = 600
	JobRetries            = 6
	SuccessfulJobs        = 3
	FailedJobs            = 1
	RolloutShare          = "25%"
	ClaimKind, ClaimGroup = "PersistentVolumeClaim", "v1"
)
