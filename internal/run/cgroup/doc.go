// Package cgroup says how much memory the control groups of this process allow, and how much of it is in use.
package cgroup
