package validate

const (
	MaxPolicyRules      = 20
	MaxExitCodes        = 255
	MaxConditions       = 20
	MaxSucceededIndexes = 64 << 10
)
