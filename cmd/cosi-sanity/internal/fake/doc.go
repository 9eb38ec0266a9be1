// Package fake is a COSI driver of both versions in memory, with an S3 server
// that honours its keys. It is correct, and for each check of the suite it has
// a fault that it can be told to have: a check that nothing fails proves
// nothing.
package fake
