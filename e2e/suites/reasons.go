package main

// reasons says why a spec differs between the servers, by package and name.
var reasons = map[string]map[string]string{}
