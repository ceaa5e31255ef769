// The worker of the site, so that a training does not stop the page.

import { serve } from "./functions.js";

serve(self);
