// Opens the site's page.

import { openPage } from "./site.js";

openPage();
