package sanity

// The sources that sentences are quoted from. Files and lines are those of
//
//	v1alpha1   Go module sigs.k8s.io/container-object-storage-interface-spec v0.1.0
//	v1alpha2   github.com/kubernetes-sigs/container-object-storage-interface, proto/, commit ee00c2690b87
//	sidecar    the same repository: tag v0.2.2 for v1alpha1, that commit for v1alpha2
//	draft      proto/ of the branch that brought v1alpha2 the generation of ids, commit 652397ddf647

func must(v Version, source, sentence string) Rule { return Rule{v, Must, sentence, source} }

func should(v Version, source, sentence string) Rule { return Rule{v, Should, sentence, source} }

func safety(v Version, source, sentence string) Rule { return Rule{v, SidecarSafety, sentence, source} }

// Sentences that several checks stand on.
const (
	oneIdempotent = "This call is idempotent"
	oneMatches    = "If a bucket that matches both name and parameters already exists, then OK (success) must be returned."
	oneDifferent  = "If a bucket by same name, but different parameters is provided, then the appropriate error code ALREADY_EXISTS must be returned."
	oneGone       = "If the bucket has already been deleted, then no error should be returned."
	oneUnique     = "The account_name in the request shall be used as a unique identifier to create credentials."
	onePending    = "The Plugin, SHOULD handle this as gracefully as possible, and MAY return this error code to reject secondary calls."
	oneInvalid    = "Indicates that the one or more fields in this field is either not allowed by the Plugin or has an invalid value."
	oneMissing    = "Indicates that a required field is missing from the request."
	oneSize       = "Unless otherwise specified, fields SHALL NOT exceed the limits documented here."
	resumes       = "Idempotency requirements ensure that a retried call with the same fields continues where it left off when retried."
	canonical     = "Each RPC defines a set of gRPC error codes that MUST be returned by the plugin when specified conditions are encountered."
	statusCode    = "The status `code` MUST contain a [canonical error code]"
	statusMessage = "The status `message` MUST contain a human readable description of error, if the status `code` is not `OK`."
	statusDetails = "The status `details` MUST be empty."
	twoExists     = "MUST return OK if a backend bucket with matching identity and parameters already exists."
	twoForm       = "To prevent abuse, this must be at most 2048 characters long, consisting of alphanumeric characters ([a-z0-9A-Z]), dashes (-), and dots (.)."
	twoPrincipal  = "MUST return OK if a principal with matching identity and parameters already exists."
	twoOtherwise  = "MUST return ALREADY_EXISTS if a principal with matching identity exists but with incompatible parameters."
	twoDeleted    = "MUST return OK if the bucket has already been deleted."
	twoRevoked    = "MUST return OK if access has already been removed from a principal."
	twoInvalid    = "One or more fields in this field is either not allowed by the Plugin or has an invalid value."
	twoMode       = "The read/write access mode that the Provisioner SHOULD provision for the bucket associated with `bucket_id`."
	twoSimultan   = "MAY issue multiple calls simultaneously for the same volume. The Plugin SHOULD handle this as gracefully as possible."
	noDeadline    = "The sidecar sets no deadline: a call without an answer holds a worker, and its object, for ever."
	retriedRevoke = "Any error, NOT_FOUND too, is repeated for ever, and the BucketAccess is never removed."
	firstKeyStays = "A Secret that exists is not touched: the application keeps the key of the first grant, whatever a repeated one answers."
	rewritten     = "Secrets are rewritten with whatever a repeated grant answers, and each restart of the sidecar repeats every grant: running applications still hold the first key."
)

const (
	sidecarAccess1 = "sidecar/pkg/bucketaccess/bucketaccess_controller.go"
	sidecarBucket1 = "sidecar/pkg/bucket/bucket_controller.go"
	sidecarDriver2 = "sidecar/pkg/reconciler/driver.go"
	sidecarAccess2 = "sidecar/pkg/reconciler/bucketaccess.go"
)

// Checks are all checks, in the order they run in.
func Checks() []Check {
	return []Check{
		// I: who the driver is.
		{Number: "I01", Name: "the driver's name is in domain name notation, of at most 63 characters", run: driverName, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:147", "The name MUST follow domain name notation format"),
			must(V1Alpha2, "cosi.proto:103", "The name MUST follow domain name notation format"),
		}},
		{Number: "I02", Name: "the driver's name is one that the sidecar starts with", run: driverNameLabels, Rules: []Rule{
			safety(V1Alpha2, sidecarDriver2+":85", "Every part of the name between dots has to be an RFC 1035 label, in lower case and beginning with a letter; otherwise the sidecar ends."),
		}},
		{Number: "I03", Name: "the driver supports a protocol", run: someProtocol, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:113", "At least one protocol is REQUIRED."),
		}},
		{Number: "I04", Name: "the driver names no protocol twice and none UNKNOWN", run: knownProtocols, Rules: []Rule{
			safety(V1Alpha2, sidecarDriver2+":110", "With an UNKNOWN protocol in the list, or one that is there twice, the sidecar ends."),
		}},

		// B: buckets.
		{Number: "B01", Name: "create answers a bucket_id", run: createAnswersID, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":145", "An empty bucket_id is an error that is repeated for ever."),
			must(V1Alpha2, "cosi.proto:298", "REQUIRED. The unique identifier for the backend bucket known to the Provisioner."),
		}},
		{Number: "B02", Name: "a bucket_id keeps to its alphabet and length", run: bucketIDForm, Rules: []Rule{
			must(V1Alpha1, "spec.md:380", oneSize),
			must(V1Alpha2, "cosi.proto:302", twoForm),
		}},
		{Number: "B03", Name: "create, repeated, answers the same bucket_id", run: createAgain, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:64", oneMatches),
			must(V1Alpha2, "cosi.proto:65", twoExists),
		}},
		{Number: "B04", Name: "two names are two buckets", run: ownBuckets, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:169", "bucket_id returned here is expected to be the globally unique identifier for the bucket in the object storage provider."),
			must(V1Alpha2, "cosi.proto:298", "REQUIRED. The unique identifier for the backend bucket known to the Provisioner."),
		}},
		{Number: "B05", Name: "create with other parameters is ALREADY_EXISTS, and changes nothing", run: createOtherwise, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:65", oneDifferent),
			must(V1Alpha2, "cosi.proto:66", "MUST return ALREADY_EXISTS if a backend bucket with matching identity exists but with incompatible parameters."),
		}},
		{Number: "B06", Name: "create answers every requested protocol, and no unsupported one", run: protocolsServed, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:312", "The Provisioner MUST indicate support for the protocols in the request."),
		}},
		{Number: "B07", Name: "delete, repeated, is OK", run: deleteAgain, Rules: []Rule{
			should(V1Alpha1, "cosi.proto:68", oneGone),
			must(V1Alpha2, "cosi.proto:79", twoDeleted),
		}},
		{Number: "B08", Name: "delete of a deleted bucket ends", run: deleteGone, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":346", "Any error but NOT_FOUND is repeated for ever, and the Bucket is never removed."),
		}},
		{Number: "B09", Name: "delete of a bucket that never was ends", run: deleteUnknown, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":346", "Any error but NOT_FOUND is repeated for ever, and the Bucket is never removed."),
			must(V1Alpha2, "spec.md:561", "If a bucket corresponding to the specified name does not exist, the Plugin MUST reply OK."),
		}},
		{Number: "B10", Name: "an existing bucket is found by its id", run: existingBucket, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:72", twoExists),
		}},
		{Number: "B11", Name: "an existing bucket that is gone is NOT_FOUND", run: existingGone, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:73", "MUST return NOT_FOUND if a bucket with matching identity does not exist."),
		}},
		{Number: "B12", Name: "an existing bucket with other parameters is ALREADY_EXISTS", run: existingOtherwise, Rules: []Rule{
			should(V1Alpha2, "spec.md:504", "`AlreadyExists` (not retryable) when the bucket already exists but is incompatible with the request."),
		}},
		{Number: "B13", Name: "a generated bucket_id is the same each time, and no other bucket's", run: generatedID, Rules: []Rule{
			must(V1Alpha2, "draft/cosi.proto:63", "It MUST return the same bucket_id for every call with the same name."),
		}},
		{Number: "B14", Name: "a bucket_id that was only generated is no bucket's, and its deletion is OK", run: onlyGenerated, Rules: []Rule{
			must(V1Alpha2, "draft/cosi.proto:66", "It MUST NOT result in backend resource leakage if this command fails and COSI subsequently deletes the resource without calling DriverDeleteBucket."),
		}},

		// A: access.
		{Number: "A01", Name: "grant answers an account_id", run: grantAnswersID, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:211", "This field is REQUIRED This is the account_id that is being provided access."),
			must(V1Alpha2, "cosi.proto:436", "REQUIRED. The unique identifier for the backend access account known to the Provisioner."),
		}},
		{Number: "A02", Name: "an account_id keeps to its alphabet and length", run: accountIDForm, Rules: []Rule{
			must(V1Alpha1, "spec.md:380", oneSize),
			must(V1Alpha2, "cosi.proto:440", twoForm),
		}},
		{Number: "A03", Name: "credentials are of one protocol, and complete", run: credentialsComplete, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":195", "Other than one entry is an error that is repeated for ever. An entry that is not s3 or azure, and a key that is misspelt, make an empty Secret without any error."),
			must(V1Alpha2, "cosi.proto:148", "If a protocol is not supported, the message MUST be empty/nil."),
		}},
		{Number: "A04", Name: "grant answers a complete info of each requested bucket, and no other", run: bucketInfosComplete, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:450", "REQUIRED: EXACTLY one protocol bucket info result MUST be non-nil. The Provisioner MUST fill in all required bucket info for the requested protocol."),
		}},
		{Number: "A05", Name: "grant, repeated, answers the same account_id", run: grantAgain, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:71", oneUnique),
			must(V1Alpha2, "cosi.proto:85", twoPrincipal),
		}},
		{Number: "A06", Name: "grant, repeated, answers the same key", run: grantSameKey, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", firstKeyStays),
			should(V1Alpha2, sidecarAccess2+":230", rewritten),
		}},
		{Number: "A07", Name: "two names are two accounts", run: ownAccounts, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:71", oneUnique),
			must(V1Alpha2, "cosi.proto:436", "REQUIRED. The unique identifier for the backend access account known to the Provisioner."),
		}},
		{Number: "A08", Name: "grant with other parameters is answered as the sidecar can bear it", run: grantOtherwise, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":181", "ALREADY_EXISTS makes the sidecar read an answer that it has not got: it crashes, and again at each start."),
			must(V1Alpha2, "cosi.proto:86", twoOtherwise),
		}},
		{Number: "A09", Name: "grant of another bucket under the same name is ALREADY_EXISTS", run: grantElsewhere, Rules: []Rule{
			should(V1Alpha2, "cosi.proto:86", twoOtherwise),
		}},
		{Number: "A10", Name: "grant on an unknown bucket is an error", run: grantUnknownBucket, Rules: []Rule{
			must(V1Alpha1, "spec.md:415", oneInvalid),
			must(V1Alpha2, "spec.md:198", twoInvalid),
		}},
		{Number: "A11", Name: "a grant for several buckets answers each, or OUT_OF_RANGE", run: manyBuckets, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:460", "REQUIRED. The Provisioner MUST return info for all `buckets` in the request."),
		}},
		{Number: "A12", Name: "the order of a grant's buckets does not matter", run: anyOrder, Rules: []Rule{
			safety(V1Alpha2, sidecarAccess2+":459", "The buckets stand in another order in each call, so that drivers do not rely on one."),
		}},
		{Number: "A13", Name: "an authentication type is served or INVALID_ARGUMENT", run: authenticationTypes, Rules: []Rule{
			must(V1Alpha1, "spec.md:415", oneInvalid),
			must(V1Alpha2, "spec.md:589", "`InvalidArgument` (not retryable) if `AuthenticationType` is not supported."),
		}},

		// R: revocation.
		{Number: "R01", Name: "revoke, repeated, is OK", run: revokeAgain, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},
		{Number: "R02", Name: "revoke of access that never was is OK", run: revokeUnknown, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "spec.md:680", "If an access corresponding to the specified name already doesn't exist, the Plugin MUST reply OK."),
		}},
		{Number: "R03", Name: "a bucket and its access end, whichever is deleted first", run: revokeAfterDelete, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":261", "The bucket is deleted while the revocation of its access is only asked for: DriverRevokeBucketAccess comes afterwards, and any error is repeated for ever."),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},

		// K: what issued keys can do.
		{Number: "K01", Name: "an issued key writes, reads, lists and deletes objects", run: keyWorks, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:216", "This field is REQUIRED Credentials supplied for accessing the bucket ex: aws access key id and secret, etc."),
			must(V1Alpha2, "cosi.proto:241", "The Provisioner should generate a protocol-appropriate access key that clients can use to authenticate to the backend object store."),
		}},
		{Number: "K02", Name: "a bucket is reached under the name it was asked for with", run: reachedByName, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":209", "The Secret shows the Bucket object's name, which is the name in DriverCreateBucketRequest, as the bucket to use."),
		}},
		{Number: "K03", Name: "the key given first outlives repeated grants", run: keyOutlivesRepeats, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", firstKeyStays),
			should(V1Alpha2, sidecarAccess2+":230", rewritten),
		}},
		{Number: "K04", Name: "a revoked key is refused, and its neighbour is not", run: revokedKeyRefused, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:74", "This call revokes all access to a particular bucket from a principal."),
			must(V1Alpha2, "cosi.proto:90", "Revokes access to given bucket(s) from a principal."),
		}},
		{Number: "K05", Name: "a key is refused in the neighbour's bucket", run: keysIsolated, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:216", "This field is REQUIRED Credentials supplied for accessing the bucket ex: aws access key id and secret, etc."),
			must(V1Alpha2, "cosi.proto:82", "Grant access to a bucket."),
		}},
		{Number: "K06", Name: "a read-only key reads and does not write", run: readOnlyReads, Rules: []Rule{
			should(V1Alpha1, "cosi.proto:206", "The receiver is responsible for parsing and validating the values."),
			should(V1Alpha2, "cosi.proto:426", twoMode),
		}},
		{Number: "K07", Name: "a write-only key writes and does not read", run: writeOnlyWrites, Rules: []Rule{
			should(V1Alpha1, "cosi.proto:206", "The receiver is responsible for parsing and validating the values."),
			should(V1Alpha2, "cosi.proto:426", twoMode),
		}},
		{Number: "K08", Name: "a key ends with its bucket", run: deletedBucketsKeys, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":261", "The bucket is deleted before access to it is revoked, and where claim and access are deleted together the revocation may never come: the key is left."),
		}},
		{Number: "K09", Name: "a key for two buckets has each bucket's own mode", run: eachItsMode, Rules: []Rule{
			should(V1Alpha2, "cosi.proto:426", twoMode),
		}},
		{Number: "K10", Name: "a key that is read-only in the first of three modes reads and does not write", run: splitReadOnly, Rules: []Rule{
			should(V1Alpha2, "draft/cosi.proto:271", "Read-only access mode."),
		}},

		// F: fields.
		{Number: "F01", Name: "a missing field of create or grant is INVALID_ARGUMENT", run: missingFields, Rules: []Rule{
			must(V1Alpha1, "spec.md:414", oneMissing),
			must(V1Alpha2, "spec.md:171", "A field noted as `REQUIRED` MUST be specified, subject to any per-RPC caveats; caveats SHOULD be rare."),
		}},
		{Number: "F02", Name: "a missing id of delete or revoke is OK or INVALID_ARGUMENT", run: missingIDs, Rules: []Rule{
			must(V1Alpha1, "spec.md:414", oneMissing),
			must(V1Alpha2, "spec.md:171", "A field noted as `REQUIRED` MUST be specified, subject to any per-RPC caveats; caveats SHOULD be rare."),
		}},
		{Number: "F03", Name: "an unknown enum value is INVALID_ARGUMENT", run: unknownValues, Rules: []Rule{
			must(V1Alpha1, "spec.md:415", oneInvalid),
			must(V1Alpha2, "spec.md:198", twoInvalid),
		}},
		{Number: "F04", Name: "an unsupported protocol is INVALID_ARGUMENT", run: unsupportedProtocols, Rules: []Rule{
			must(V1Alpha2, "cosi.proto:289", "If any protocol cannot be supported, the Provisioner MUST return `InvalidArgument`."),
		}},
		{Number: "F05", Name: "create takes an over-long value or refuses it for what it is", run: overlongCreates, Rules: []Rule{
			must(V1Alpha1, "spec.md:482", "this code MUST also be used to indicate when plugin cannot create a bucket due to parameter check on the backend."),
			must(V1Alpha2, "spec.md:435", "`InvalidArgument` (not retryable) if any parameters are invalid for the backend."),
		}},
		{Number: "F06", Name: "the other calls answer an over-long value", run: overlongOthers, Rules: []Rule{
			must(V1Alpha1, "spec.md:415", oneInvalid),
			must(V1Alpha2, "spec.md:198", twoInvalid),
		}},
		{Number: "F07", Name: "a foreign id is answered", run: foreignIDsAnswered, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":346", "The sidecar does not look whose BucketAccess it revokes: each driver of a cluster is sent the ids of all."),
			safety(V1Alpha2, sidecarAccess2+":191", "Neither controller nor sidecar compares the Bucket's driver with the access's: a driver is sent another's bucket_id."),
		}},

		// C: callers at once.
		{Number: "C01", Name: "callers of one bucket name get one bucket_id", run: createAtOnce, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:63", oneIdempotent),
			must(V1Alpha2, "spec.md:430", "This operation MUST be idempotent."),
		}},
		{Number: "C02", Name: "callers of one access name get one account_id", run: grantAtOnce, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:71", oneUnique),
			must(V1Alpha2, "spec.md:584", "This operation MUST be idempotent."),
		}},
		{Number: "C03", Name: "callers of one access name get one key", run: keyAtOnce, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":244", firstKeyStays),
			should(V1Alpha2, sidecarAccess2+":230", rewritten),
		}},
		{Number: "C04", Name: "callers of different names do not disturb each other", run: differentAtOnce, Rules: []Rule{
			should(V1Alpha1, "spec.md:417", onePending),
			should(V1Alpha2, "spec.md:148", twoSimultan),
		}},
		{Number: "C05", Name: "callers that end the same access, then the same bucket, all come to an end", run: endAtOnce, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":368", retriedRevoke),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},
		{Number: "C06", Name: "a bucket and its accesses, deleted at once, all come to an end", run: deleteTogether, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":246", "The deletion of a bucket's accesses is asked for and the bucket deleted at the same moment; each call is repeated until it is OK."),
			must(V1Alpha2, "cosi.proto:93", twoRevoked),
		}},

		// T: calls that are given up.
		{Number: "T01", Name: "a create that was given up is completed by a repetition", run: createGivenUp, Rules: []Rule{
			must(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:182", resumes),
		}},
		{Number: "T02", Name: "a grant that was given up is completed by a repetition", run: grantGivenUp, Rules: []Rule{
			must(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:182", resumes),
		}},
		{Number: "T03", Name: "a revoke that was given up is completed by a repetition", run: revokeGivenUp, Rules: []Rule{
			must(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:182", resumes),
		}},
		{Number: "T04", Name: "a delete that was given up is completed by a repetition", run: deleteGivenUp, Rules: []Rule{
			must(V1Alpha1, "spec.md:401", resumes),
			must(V1Alpha2, "spec.md:182", resumes),
		}},

		// G: all calls of the run.
		{Number: "G01", Name: "every code is one that the RPC has", overall: codesAllowed, Rules: []Rule{
			must(V1Alpha1, "spec.md:410", canonical),
			must(V1Alpha2, "spec.md:193", canonical),
		}},
		{Number: "G02", Name: "no error comes without a code of its own", overall: noUnknown, Rules: []Rule{
			should(V1Alpha1, "spec.md:410", statusCode),
			should(V1Alpha2, "spec.md:191", statusCode),
		}},
		{Number: "G03", Name: "no grant is ALREADY_EXISTS", overall: grantNeverExists, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":181", "ALREADY_EXISTS makes the sidecar read an answer that it has not got: it crashes, and again at each start."),
		}},
		{Number: "G04", Name: "the details of every status are empty", overall: detailsEmpty, Rules: []Rule{
			must(V1Alpha1, "spec.md:424", statusDetails),
			must(V1Alpha2, "spec.md:209", statusDetails),
		}},
		{Number: "G05", Name: "every error has a message that can be read", overall: messagesReadable, Rules: []Rule{
			must(V1Alpha1, "spec.md:421", statusMessage),
			must(V1Alpha2, "spec.md:205", statusMessage),
		}},
		{Number: "G06", Name: "no error's message holds a secret", overall: messagesKeepSecrets, Rules: []Rule{
			safety(V1Alpha1, sidecarBucket1+":134", "The message is put into an Event, for whoever may read Events."),
			safety(V1Alpha2, sidecarAccess2+":91", "The message is put into the object's status, for whoever may read the object."),
		}},
		{Number: "G07", Name: "a call that is refused again is refused in the same words", overall: messagesStable, Rules: []Rule{
			should(V1Alpha1, sidecarBucket1+":134", "The message is put into an Event at each attempt: words that change make a new Event each time."),
			should(V1Alpha2, sidecarAccess2+":91", "The message is put into the object's status at each attempt: words that change write the object each time."),
		}},
		{Number: "G08", Name: "every call is answered", overall: callsAnswered, Rules: []Rule{
			safety(V1Alpha1, sidecarAccess1+":179", noDeadline),
			safety(V1Alpha2, sidecarAccess2+":191", noDeadline),
		}},
		{Number: "G09", Name: "the driver still answers in the end", overall: stillAnswers, Rules: []Rule{
			must(V1Alpha1, "spec.md:511", "All supported RPC services MUST be available at the listen address of the Plugin."),
			must(V1Alpha2, "spec.md:729", "All supported RPC services MUST be available at the listen address of the Plugin."),
		}},
		{Number: "G10", Name: "the suite could clean up after itself", overall: cleansUp, Rules: []Rule{
			must(V1Alpha1, "cosi.proto:67", "This call is made to delete the bucket in the backend."),
			must(V1Alpha2, "cosi.proto:76", "Delete the bucket in the backend."),
		}},
	}
}
