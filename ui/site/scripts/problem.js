// An error that is shown to the visitor in its own words; any other error is a fault of the program.

export class Problem extends Error {}
