package validate

func Frozen(flag *bool) bool { return flag != nil && *flag }
