package console

import (
	"fmt"
	"regexp"
)

var (
	// failedCheck is the message of a failed availability check of kube-apiserver or Portico. A reason may precede it.
	failedCheck = regexp.MustCompile(`^(.*?)failing or missing response from (\S+): (.+)$`)
	// badStatus and getError repeat the URL within the cause.
	badStatus = regexp.MustCompile(`^bad status from (\S+): (\d{3})$`)
	getError  = regexp.MustCompile(`^Get "[^"]*": (.+)$`)
	// failedStep is the error of a connection: a step, with addresses, and the cause at the end.
	failedStep = regexp.MustCompile(`^(?:dial [^ ]+:\d+: )?((?:dial|read|write) (?:tcp|udp|unix)[46]?(?: [^ ]+)?): (?:(?:connect|read|write): )?(.+)$`)
)

// causeFirst reorders a message for display: the cause comes first and the URL last, because lists shorten the URL.
// Other messages are returned unchanged.
func causeFirst(message string) string {
	if m := failedCheck.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s%s, from %s", m[1], causeOf(m[3]), m[2])
	}
	if m := badStatus.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("bad status %s, from %s", m[2], m[1])
	}
	return causeOf(message)
}

// causeOf returns an error with the cause before the step that failed.
func causeOf(text string) string {
	if m := badStatus.FindStringSubmatch(text); m != nil {
		return "bad status " + m[2]
	}
	if m := getError.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	if m := failedStep.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s (%s)", m[2], m[1])
	}
	return text
}
