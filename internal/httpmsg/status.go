package httpmsg

// BodyAllowed reports whether an answer with a status may have a body.
func BodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }
